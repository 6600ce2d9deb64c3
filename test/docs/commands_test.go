package docs

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"leased/test/proc"
)

// TestCommands holds the commands that pages show to those that there are: a flag
// that was renamed, or a word that is no command, fails here.
func TestCommands(t *testing.T) {
	bin := proc.Build(t, "leased/cmd/leased")
	help := map[string]string{}
	flag := regexp.MustCompile(`^--?[a-z][a-z.-]*`)
	shown := regexp.MustCompile(`(?m)^(?:    |\$ +|    \$ )(?:\./)?leased ([^#|>\n]*)`)
	for _, page := range []string{"../../docs/holding.md", "../../docs/operations.md", "../../deploy/README.md", "../../README.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		commands := shown.FindAllStringSubmatch(string(text), -1)
		if len(commands) == 0 {
			t.Errorf("%s shows no command of leased", page)
		}
		for _, m := range commands {
			if strings.TrimSpace(m[1]) == "" {
				continue
			}
			m[1], _, _ = strings.Cut(m[1], " -- ") // a command of somebody else's
			path := commandPath(strings.Fields(m[1]))
			name := strings.Join(path, " ")
			if help[name] == "" {
				out, err := exec.CommandContext(t.Context(), bin, append(path, "--help")...).CombinedOutput()
				if err != nil {
					t.Errorf("%s: leased %s --help: %v\n%s", page, name, err, out)
				}
				help[name] = string(out)
			}
			if !strings.Contains(help[name], "  leased "+name) {
				t.Errorf("%s: leased %s is no command", page, name)
			}
			for word := range strings.FieldsSeq(m[1]) {
				// Members and the like have names of the operator's own.
				f := flag.FindString(word)
				if f == "" || strings.HasPrefix(f, "--cluster.members.") {
					continue
				}
				if !regexp.MustCompile(`(?m)^ +(-[a-z], )?` + regexp.QuoteMeta(f) + `[, ]`).MatchString(help[name]) {
					t.Errorf("%s: leased %s has no flag %s, in: leased %s", page, name, f, m[1])
				}
			}
		}
	}
}

// commandPath returns the words that name a command: cluster has commands of its own.
func commandPath(words []string) []string {
	if words[0] == "cluster" && len(words) > 1 && !strings.HasPrefix(words[1], "-") {
		return words[:2]
	}
	return words[:1]
}
