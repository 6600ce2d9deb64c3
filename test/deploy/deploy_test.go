package deploy

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"leased/test/proc"
)

const root = "../../deploy"

// TestFiles_parse reads every file that has a form, so that none is forgotten.
func TestFiles_parse(t *testing.T) {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		switch filepath.Ext(path) {
		case ".yaml":
			if len(documents(t, path)) == 0 {
				t.Errorf("%s is empty", path)
			}
		case ".sh":
			if out, err := exec.CommandContext(t.Context(), "bash", "-n", path).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", path, err, out)
			}
		case ".service":
			checkUnit(t, path)
		case ".md", ".dockerignore", "":
		default:
			t.Errorf("nothing here reads %s", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// documents returns what a YAML file holds. Duplicate names are errors.
func documents(t *testing.T, path string) []map[string]any {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var all []map[string]any
	for dec := yaml.NewDecoder(f); ; {
		var doc map[string]any
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, doc)
	}
}

func checkUnit(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n, line := range strings.Split(string(text), "\n") {
		name, _, ok := strings.Cut(line, "=")
		section := strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]")
		if line != "" && line[0] != '#' && !section && (!ok || strings.ContainsAny(name, " \t")) {
			t.Errorf("%s:%d: %q is neither a section nor a setting", path, n+1, line)
		}
	}
}

// node is how a node is started.
type node struct {
	id     string
	config string
	env    []string
}

// TestConfigurations has leased read each configuration as each node would.
func TestConfigurations(t *testing.T) {
	bin := proc.Build(t, "leased/cmd/leased")
	nodes := slices.Concat(composeNodes(t), kubernetesNodes(t), []node{{id: "n1", config: root + "/systemd/leased.yaml"}})
	if len(nodes) != 7 {
		t.Fatalf("%d nodes, want three, three and one", len(nodes))
	}
	for _, n := range nodes {
		cmd := exec.CommandContext(t.Context(), bin, "serve", "--config", n.config, "--check")
		cmd.Env = append(os.Environ(), n.env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s as %s: %v\n%s", n.config, n.id, err, out)
		}
		var config struct {
			Cluster struct {
				Members map[string]string `yaml:"members"`
			} `yaml:"cluster"`
		}
		text, err := os.ReadFile(n.config)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, &config); err != nil {
			t.Fatal(err)
		}
		if len(config.Cluster.Members) != 3 || config.Cluster.Members[n.id] == "" {
			t.Errorf("%s: members %v, want three and %s among them", n.config, config.Cluster.Members, n.id)
		}
	}
}

func composeNodes(t *testing.T) []node {
	t.Helper()
	text, err := os.ReadFile(root + "/compose/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Environment map[string]string `yaml:"environment"`
			Command     []string          `yaml:"command"`
			Volumes     []string          `yaml:"volumes"`
		} `yaml:"services"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var nodes []node
	for name, service := range file.Services {
		n := node{id: name, config: root + "/compose/leased.yaml"}
		if got := service.Environment["LEASED_NODE_ID"]; got != name {
			t.Errorf("service %s has the node id %q", name, got)
		}
		inside := map[string]string{}
		for _, v := range service.Volumes {
			if from, rest, ok := strings.Cut(v, ":"); ok {
				to, _, _ := strings.Cut(rest, ":")
				inside[to] = from
			}
		}
		for _, file := range []string{service.Command[len(service.Command)-1], "/data"} {
			if inside[file] == "" {
				t.Errorf("service %s mounts nothing at %s", name, file)
			}
		}
		for variable, value := range service.Environment {
			n.env = append(n.env, variable+"="+value)
			if strings.HasPrefix(value, "/tls/") && inside[value] == "" {
				t.Errorf("service %s mounts nothing at %s=%s", name, variable, value)
			}
		}
		if inside["/tls/node.pem"] != "./tls/"+name+".pem" || inside["/tls/node.key"] != "./tls/"+name+".key" {
			t.Errorf("service %s has the certificate of another node", name)
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func kubernetesNodes(t *testing.T) []node {
	t.Helper()
	text, err := os.ReadFile(root + "/kubernetes/statefulset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var set struct {
		Metadata struct {
			Name string `yaml:"name"`
		} `yaml:"metadata"`
		Spec struct {
			Replicas int `yaml:"replicas"`
			Template struct {
				Spec struct {
					Containers []struct {
						Env []struct {
							Name  string `yaml:"name"`
							Value string `yaml:"value"`
						} `yaml:"env"`
					} `yaml:"containers"`
				} `yaml:"spec"`
			} `yaml:"template"`
		} `yaml:"spec"`
	}
	if err := yaml.Unmarshal(text, &set); err != nil {
		t.Fatal(err)
	}
	var nodes []node
	for i := range set.Spec.Replicas {
		id := set.Metadata.Name + "-" + string(rune('0'+i))
		n := node{id: id, config: root + "/kubernetes/leased.yaml"}
		for _, e := range set.Spec.Template.Spec.Containers[0].Env {
			if e.Value == "" { // the pod's name
				e.Value = id
			}
			n.env = append(n.env, e.Name+"="+strings.ReplaceAll(e.Value, "$(LEASED_NODE_ID)", id))
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// TestKubernetes_resources holds the list of resources to the folder.
func TestKubernetes_resources(t *testing.T) {
	files, err := filepath.Glob(root + "/kubernetes/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Resources []string `yaml:"resources"`
	}
	text, err := os.ReadFile(root + "/kubernetes/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	want := append(slices.Clone(file.Resources), "kustomization.yaml", "leased.yaml")
	for i, f := range files {
		files[i] = filepath.Base(f)
	}
	slices.Sort(want)
	if !slices.Equal(files, want) {
		t.Errorf("the folder has %v, the resources are %v", files, want)
	}
}
