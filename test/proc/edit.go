package proc

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Edit is another text in the place of a part of a file of this module: of a Go source,
// or of what is embedded in one.
type Edit struct {
	File string // from the root of the module
	// Is stands in the file, once.
	Is, Becomes string
}

// Edited returns the texts that the files have with the edits, by their paths. One whose
// text does not stand there once is an error: the file was changed since it was written.
func Edited(root string, edits ...Edit) (map[string]string, error) {
	texts := map[string]string{}
	for _, e := range edits {
		path := filepath.Join(root, filepath.FromSlash(e.File))
		if _, ok := texts[path]; !ok {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			texts[path] = string(text)
		}
		if n := strings.Count(texts[path], e.Is); n != 1 {
			return nil, fmt.Errorf("%s has %d times, want once: %q", e.File, n, e.Is)
		}
		texts[path] = strings.Replace(texts[path], e.Is, e.Becomes, 1)
	}
	return texts, nil
}

// Root returns the root of this module.
func Root(t *testing.T) string {
	t.Helper()
	mod, err := exec.CommandContext(t.Context(), "go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(strings.TrimSpace(string(mod)))
}

// BuildEdited compiles a command as Build does, with the edits. The files themselves are
// left alone.
func BuildEdited(t *testing.T, pkg string, edits ...Edit) string {
	t.Helper()
	texts, err := Edited(Root(t), edits...)
	if err != nil {
		t.Fatal(err)
	}
	return buildChanged(t, pkg, texts)
}

// BuildWithSmallLog compiles leased as Build does, with segments of its log that have
// 1 MiB: what happens when there is no space for the next one need not wait until
// 64 MiB are written.
func BuildWithSmallLog(t *testing.T) string {
	t.Helper()
	return BuildEdited(t, "leased/cmd/leased", Edit{
		File: "cluster/logfiles.go", Is: "segmentSize = 64 << 20\n", Becomes: "segmentSize = 1 << 20\n",
	})
}

// buildChanged compiles a command with other texts in the place of files'.
func buildChanged(t *testing.T, pkg string, texts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	replace := map[string]string{}
	for original, text := range texts {
		// The name ends as the file's does, which says what it is.
		replace[original] = filepath.Join(dir, fmt.Sprintf("%d-%s", len(replace), filepath.Base(original)))
		write(replace[original], text)
	}
	files, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay, bin := filepath.Join(dir, "overlay.json"), filepath.Join(dir, filepath.Base(pkg))
	write(overlay, string(files))
	cmd := exec.CommandContext(t.Context(), "go", "run", "-exec", "cp", "-overlay", overlay, pkg, bin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s with other files: %v\n%s", pkg, err, out)
	}
	return bin
}
