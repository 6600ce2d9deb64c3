package proc

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// nobody is the user and group that database servers run as when the tests run
// as root, which these servers refuse.
const nobody = 65534

// database is a server of SQL with its data in a folder of its own.
type database struct {
	name string
	dir  string // readable to the user that the server runs as
	cmd  *exec.Cmd
	done chan struct{}
}

// newDatabase makes the folder. That of the test will not do: it lies in one which
// only root may enter.
func newDatabase(t TB, name string) *database {
	t.Helper()
	dir, err := os.MkdirTemp("", name)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if os.Getuid() == 0 {
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatalf("%v", err)
		}
	}
	return &database{name: name, dir: dir}
}

// command returns a command that runs as the server's user.
func (d *database) command(ctx context.Context, bin string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Dir = d.dir
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	return cmd
}

// start starts the server and waits until it takes connections. The test ends it.
func (d *database) start(t TB, addr, bin string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(d.dir, "log"))
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer func() { _ = log.Close() }()
	d.cmd = d.command(context.WithoutCancel(t.Context()), bin, args...)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	if err := d.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", d.name, err)
	}
	d.done = make(chan struct{})
	go func() { _ = d.cmd.Wait(); close(d.done) }()
	t.Cleanup(d.kill)
	Succeeds(t, d.name+" takes connections", startTimeout, func() error {
		select {
		case <-d.done:
			t.Fatalf("%s ended while it started:\n%s", d.name, d.log())
		default:
		}
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// kill ends the server with the processes that it started.
func (d *database) kill() {
	// PostgreSQL ends its children on SIGQUIT; killed by SIGKILL it would leave it
	// to them to notice.
	_ = d.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-d.done:
	case <-time.After(10 * time.Second):
		_ = d.cmd.Process.Kill()
		<-d.done
	}
}

func (d *database) log() string {
	text, _ := os.ReadFile(filepath.Join(d.dir, "log")) // it is for a failed test's reader
	return string(text)
}

// StartPostgres starts a PostgreSQL server on a free loopback port, and returns
// the address. Its user and database are "postgres", without a password. It does
// not wait for the disk: no test restarts it.
func StartPostgres(t TB) (addr string) {
	t.Helper()
	d := newDatabase(t, "postgres")
	data := filepath.Join(d.dir, "data")
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	out, err := d.command(ctx, postgresBinary(t, "initdb"), "--pgdata="+data, "--no-sync", "--no-instructions",
		"--auth=trust", "--username=postgres", "--no-locale", "--encoding=UTF8").CombinedOutput()
	if err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	port := FreePort(t)
	addr = loopback(port)
	d.start(t, addr, postgresBinary(t, "postgres"), "-D", data, "-p", strconv.Itoa(port), "-h", "127.0.0.1", "-k", "",
		"-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=100", "-c", "shared_buffers=16MB")
	return addr
}

// postgresBinary finds a program of PostgreSQL. Debian has the server's beside
// each other by version, outside of the path.
func postgresBinary(t TB, name string) string {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err == nil && len(found) > 0 {
		return slices.Max(found)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("there is no PostgreSQL: run test/setup.sh")
	}
	return path
}

// StartMariaDB starts a MariaDB server on a free loopback port, and returns the
// address. Anybody is let in; it has one database, "test".
func StartMariaDB(t TB) (addr string) {
	t.Helper()
	d := newDatabase(t, "mariadb")
	data := filepath.Join(d.dir, "data")
	// The folder of a database is the database. Without those of the system there
	// are no users, and so none to check; InnoDB makes what it needs by itself.
	for _, path := range []string{data, filepath.Join(data, "test")} {
		err := os.Mkdir(path, 0o700)
		if err == nil && os.Getuid() == 0 {
			err = os.Chown(path, nobody, nobody)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			t.Fatalf("%v", err)
		}
	}
	bin, err := exec.LookPath("mariadbd")
	if err != nil {
		if bin = "/usr/sbin/mariadbd"; !executable(bin) {
			t.Fatalf("there is no MariaDB: run test/setup.sh")
		}
	}
	port := FreePort(t)
	addr = loopback(port)
	d.start(t, addr, bin, "--no-defaults", "--skip-grant-tables", "--skip-networking=0", "--bind-address=127.0.0.1",
		"--port="+strconv.Itoa(port), "--datadir="+data, "--socket="+filepath.Join(d.dir, "socket"),
		"--pid-file="+filepath.Join(d.dir, "pid"), "--innodb-buffer-pool-size=16M", "--innodb-log-file-size=4M",
		"--innodb-flush-log-at-trx-commit=0")
	return addr
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&0o111 != 0
}
