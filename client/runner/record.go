package runner

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
)

// Files are one line that names the format and the checksum of the rest, which is
// JSON:
//
//	leased-runner 1 job sha256:<hexadecimal>
//	{"folder":…}
const (
	jobHeader    = "leased-runner 1 job sha256:"
	folderHeader = "leased-runner 1 folder sha256:"
)

// record is the file of a job.
type record struct {
	Folder string `json:"folder"` // the id of the folder that it belongs to
	Status Status `json:"status"`
}

// identity is the file that makes a folder a runner's.
type identity struct {
	ID        string `json:"id"`
	Namespace string `json:"namespace"`
	Instance  string `json:"instance"`
}

func encode(header string, v any) ([]byte, error) {
	content, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	return seal(header, append(content, '\n')), nil
}

func seal(header string, content []byte) []byte {
	return append(fmt.Appendf(nil, "%s%x\n", header, sha256.Sum256(content)), content...)
}

// decode is strict: a file that this version would not have written is refused,
// so that nothing in it is lost when it is written again.
func decode(header string, file []byte, v any) error {
	line, content, ok := bytes.Cut(file, []byte("\n"))
	sum, isOurs := bytes.CutPrefix(line, []byte(header))
	switch {
	case len(file) == 0:
		return errors.New("it is empty")
	case !isOurs:
		return fmt.Errorf("it does not begin with %q: another program, or another version of this one, wrote it", header)
	case !ok || string(sum) != fmt.Sprintf("%x", sha256.Sum256(content)):
		return errors.New("its checksum is wrong: it is damaged, or was edited")
	}
	return json.Unmarshal(content, v, json.RejectUnknownMembers(true))
}

func decodeJob(file []byte, folder string) (Status, error) {
	var r record
	if err := decode(jobHeader, file, &r); err != nil {
		return r.Status, err
	}
	s := &r.Status
	if r.Folder != folder {
		return *s, fmt.Errorf("it belongs to the folder with the id %s, and this one has %s", r.Folder, folder)
	}
	if err := s.check(); err != nil {
		return *s, err
	}
	switch s.State {
	case Queued, Done, Failed, Lost:
	case Acquiring:
		if s.RequestID == "" {
			return *s, errors.New("the job acquires its lease without a request id")
		}
	case Running:
		if s.LeaseID == "" || s.Token == 0 {
			return *s, errors.New("the job runs without a lease")
		}
	default:
		return *s, fmt.Errorf("there is no state %q", s.State)
	}
	return *s, nil
}
