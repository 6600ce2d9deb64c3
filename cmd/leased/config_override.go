package main

import (
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// override is a setting from outside the file. The loader puts it into the
// file's tree before that is decoded, so that a value is read by the same rules
// wherever it came from.
type override struct {
	path   []string
	value  string
	origin string // "--http.listen" or "LEASED_HTTP_LISTEN"
}

// anyName stands in a leaf's path for the name of a namespace, a backend or a
// cluster member.
const anyName = "*"

func configType() reflect.Type { return reflect.TypeFor[config]() }

// leaves returns the path of every setting that a flag or variable can give:
// the scalars, and lists of texts, which are given comma-separated. Roles are
// lists of sections and stay in the file.
func leaves(t reflect.Type, path []string) [][]string {
	switch {
	case t.Kind() == reflect.Struct:
		var all [][]string
		for i := range t.NumField() {
			all = append(all, leaves(t.Field(i).Type, extend(path, fieldName(t, i)))...)
		}
		return all
	case t.Kind() == reflect.Map:
		return leaves(t.Elem(), extend(path, anyName))
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.String:
		return nil
	}
	return [][]string{path}
}

// flagName returns the flag of a leaf: "--node.data-dir" for node.data_dir.
func flagName(path []string) string {
	return strings.ReplaceAll(dotted(path), "_", "-")
}

// envName returns the variable of a leaf: LEASED_NODE_DATA_DIR.
func envName(path []string) string {
	fold := strings.NewReplacer(".", "_", "-", "_")
	return envPrefix + strings.ToUpper(fold.Replace(strings.Join(path, "_")))
}

const envPrefix = "LEASED_"

// matchName fits text to the leaf whose name, as nameOf builds it, is that text
// or has one of its own names in place of anyName. Two leaves can fit, since
// names may hold the separator: then the one that names an entry of known wins,
// and after that the longest fixed part, so that LEASED_NAMESPACES_A_HISTORY_KEEP
// is the history of "a".
func matchName(text string, nameOf func([]string) string, known func(section, folded string) (string, bool)) ([]string, bool) {
	var (
		best      []string
		bestFixed = -1
	)
	for _, leaf := range leaves(configType(), nil) {
		i := slices.Index(leaf, anyName)
		if i < 0 {
			if nameOf(leaf) == text {
				return leaf, true
			}
			continue
		}
		before, after, _ := strings.Cut(nameOf(leaf), anyName)
		middle, ok := strings.CutPrefix(text, before)
		if !ok {
			continue
		}
		if middle, ok = strings.CutSuffix(middle, after); !ok || middle == "" {
			continue
		}
		fixed := len(before) + len(after)
		name, isKnown := known(dotted(leaf[:i]), middle)
		if isKnown {
			fixed += len(text)
		}
		if fixed > bestFixed {
			best, bestFixed = slices.Clone(leaf), fixed
			best[i] = name
		}
	}
	return best, bestFixed >= 0
}

// envOverrides returns the settings among the variables of environ. A variable
// that is empty counts as not set: that is how compose files and unit files
// spell it. Those that begin like a section and fit nothing are problems; the
// names of the others are returned, to be warned about.
func envOverrides(environ []string, tree *yaml.Node) (set []override, strange []string, bad problems) {
	known := func(section, folded string) (string, bool) {
		for _, name := range entryNames(tree, section) {
			if strings.TrimPrefix(envName([]string{name}), envPrefix) == folded {
				return name, true
			}
		}
		return strings.ToLower(folded), false
	}
	environ = slices.Sorted(slices.Values(environ))
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, envPrefix) || value == "" || notConfiguration(name) {
			continue
		}
		path, ok := matchName(name, envName, known)
		switch {
		case ok:
			set = append(set, override{path: path, value: value, origin: name})
		case beginsLikeSection(name):
			bad.add(name, "names no setting; the variable of namespaces.jobs.ttl.max is LEASED_NAMESPACES_JOBS_TTL_MAX")
		default:
			strange = append(strange, name)
		}
	}
	return set, strange, bad
}

func beginsLikeSection(name string) bool {
	for _, section := range fieldNames(configType()) {
		if strings.HasPrefix(name, envName([]string{section})+"_") {
			return true
		}
	}
	return false
}

// notConfiguration reports variables that begin with LEASED_ and are somebody
// else's: the client's, what `leased run` gives its child, and what Kubernetes
// sets in every pod beside a Service whose name begins with "leased". Refusing
// the last kept pods from starting in more than one product.
func notConfiguration(name string) bool {
	switch name {
	case "LEASED_SERVER", "LEASED_TOKEN_FILE", "LEASED_NAMESPACE", "LEASED_CONFIG",
		"LEASED_TOKEN", "LEASED_LEASE_ID", "LEASED_KEY_ID", "LEASED_EXPIRES_AT":
		return true
	}
	if strings.HasSuffix(name, "_SERVICE_HOST") || strings.Contains(name+"_", "_SERVICE_PORT_") {
		return true
	}
	_, port, ok := strings.Cut(name, "_PORT")
	return ok && (port == "" || strings.Contains(port, "_TCP") || strings.Contains(port, "_UDP"))
}

// entryNames returns the names that the file has in a section such as
// "namespaces" or "cluster.members".
func entryNames(tree *yaml.Node, section string) []string {
	for part := range strings.SplitSeq(section, ".") {
		if tree = child(tree, part); tree == nil {
			return nil
		}
	}
	var names []string
	for i := 0; i+1 < len(tree.Content) && tree.Kind == yaml.MappingNode; i += 2 {
		names = append(names, tree.Content[i].Value)
	}
	return names
}

func child(n *yaml.Node, name string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

// apply puts o into the tree, in place of what the file says there. A section
// that the file gives another shape is left for the decoder to refuse.
func (d *decoder) apply(root *yaml.Node, o override) {
	n := root
	for _, part := range o.path[:len(o.path)-1] {
		next := child(n, part)
		if next == nil || next.Kind == yaml.ScalarNode && next.ShortTag() == "!!null" {
			next = d.put(n, part, &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}, o.origin)
		}
		if next.Kind != yaml.MappingNode {
			return
		}
		n = next
	}
	value := &yaml.Node{Kind: yaml.ScalarNode, Value: o.value}
	if leafType(o.path).Kind() == reflect.Slice {
		value = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for item := range strings.SplitSeq(o.value, ",") {
			entry := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: strings.TrimSpace(item)}
			d.origin[entry] = o.origin
			value.Content = append(value.Content, entry)
		}
	} else if o.value == "" {
		value.Tag = "!!str" // --audit.file= means no file, not "no value"
	}
	d.put(n, o.path[len(o.path)-1], value, o.origin)
}

// put sets an entry of a section, in place of one that the file may have.
func (d *decoder) put(section *yaml.Node, name string, value *yaml.Node, origin string) *yaml.Node {
	d.origin[value] = origin
	for i := 0; i+1 < len(section.Content); i += 2 {
		if section.Content[i].Value == name {
			section.Content[i+1] = value
			return value
		}
	}
	key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name}
	d.origin[key] = origin
	section.Content = append(section.Content, key, value)
	return value
}

// leafType returns the type of the setting at path.
func leafType(path []string) reflect.Type {
	t := configType()
	for _, part := range path {
		if t.Kind() == reflect.Struct {
			t = t.Field(fieldIndex(t, part)).Type
		} else {
			t = t.Elem()
		}
	}
	return t
}

// nearest returns the candidate that a slip of the keyboard separates from
// text, or "".
func nearest(text string, candidates []string) string {
	best, limit := "", max(1, min(2, len(text)/3))
	for _, c := range candidates {
		if d := editDistance(strings.ToLower(text), c); d <= limit {
			best, limit = c, d-1
		}
	}
	return best
}

// editDistance is the number of characters to insert, delete, replace or swap
// with their neighbour to get from a to b.
func editDistance(a, b string) int {
	var before []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(row[j]+cost, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
