package runner

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

const (
	lockName     = "lock"
	identityName = "folder"
	jobSuffix    = ".job"
	tmpSuffix    = ".tmp" // of a file that is not complete
)

// ErrInUse says that another runner has the folder open.
var ErrInUse = errors.New("another runner uses the folder")

// store is the folder of a runner. Each file is replaced as a whole: what is there
// under its name was written to the end and synced.
type store struct {
	dir  string
	id   string
	lock *os.File
	// step, where a test set it, is called between any two steps that a killed
	// process could end between.
	step func(string)
}

// openStore opens a folder, or makes one, and returns its jobs. The error names
// the file that is wrong and what is wrong with it: nothing is guessed or skipped.
func openStore(dir, namespace, instance string, step func(string)) (s *store, jobs []Status, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	opened := &store{dir: dir, step: step}
	if opened.lock, err = lock(filepath.Join(dir, lockName)); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", dir, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, opened.close())
		}
	}()
	names, err := opened.names()
	if err != nil {
		return nil, nil, err
	}
	if err := opened.identify(namespace, instance, len(names) > 0); err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		job, err := opened.read(name)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
		}
		jobs = append(jobs, job)
	}
	return opened, jobs, nil
}

// names returns the files of jobs, after it has removed what a killed process did
// not complete.
func (s *store) names() (jobs []string, err error) {
	ours := regexp.MustCompile(`^([0-9a-f]{32}\.job|folder)(\.tmp)?$`)
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		name := f.Name()
		switch {
		case name == lockName || name == identityName:
		case !ours.MatchString(name) || !f.Type().IsRegular():
			return nil, fmt.Errorf("%s is none of this folder's files: take it away", filepath.Join(s.dir, name))
		case filepath.Ext(name) == tmpSuffix:
			if err := os.Remove(filepath.Join(s.dir, name)); err != nil {
				return nil, err
			}
		default:
			jobs = append(jobs, name)
		}
	}
	return jobs, nil
}

// identify reads whose folder it is, or makes it this runner's.
func (s *store) identify(namespace, instance string, hasJobs bool) error {
	path := filepath.Join(s.dir, identityName)
	file, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !hasJobs {
		s.id = rand.Text()
		return s.write(identityName, folderHeader, &identity{s.id, namespace, instance})
	}
	if err != nil {
		return err
	}
	var found identity
	if err := decode(folderHeader, file, &found); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if found.ID == "" || found.Namespace != namespace || found.Instance != instance {
		return fmt.Errorf("%s is the folder of instance %q in namespace %q: open it as that, or open another one", s.dir, found.Instance, found.Namespace)
	}
	s.id = found.ID
	return nil
}

func (s *store) read(name string) (Status, error) {
	file, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		return Status{}, err
	}
	job, err := decodeJob(file, s.id)
	if err == nil && fileName(job.ID) != name {
		err = fmt.Errorf("it is the file of job %q under another name", job.ID)
	}
	return job, err
}

// fileName is the same length for every id, in letters that no file system folds.
func fileName(id string) string {
	sum := sha256.Sum256([]byte(id))
	return fmt.Sprintf("%x%s", sum[:16], jobSuffix)
}

// put writes a job. It is on disk when put returns nil. After an error the old or
// the new content is there.
func (s *store) put(job *Status) error {
	return s.write(fileName(job.ID), jobHeader, &record{Folder: s.id, Status: *job})
}

func (s *store) write(name, header string, v any) error {
	content, err := encode(header, v)
	if err != nil {
		return err
	}
	path := filepath.Join(s.dir, name)
	s.at("write")
	f, err := os.OpenFile(path+tmpSuffix, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	half := len(content) / 2
	_, err = f.Write(content[:half])
	s.at("half written")
	if err == nil {
		_, err = f.Write(content[half:])
	}
	s.at("sync")
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	s.at("rename")
	if err := os.Rename(path+tmpSuffix, path); err != nil {
		return err
	}
	s.at("sync folder")
	return s.syncDir()
}

// remove removes the file of a job. It is gone from the disk when it returns nil.
func (s *store) remove(id string) error {
	if err := os.Remove(filepath.Join(s.dir, fileName(id))); err != nil {
		return err
	}
	return s.syncDir()
}

// syncDir makes what was renamed or removed durable.
func (s *store) syncDir() error {
	d, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (s *store) at(step string) {
	if s.step != nil {
		s.step(step)
	}
}

// close lets another runner in.
func (s *store) close() error { return unlock(s.lock) }
