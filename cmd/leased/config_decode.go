package main

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// problems collects everything that is wrong with a configuration, so that an
// operator corrects it in one go. Each line names where the value came from:
// "leased.yaml:14", "LEASED_HTTP_LISTEN" or "--http.listen".
type problems []string

// Error returns one problem a line.
func (p problems) Error() string { return strings.Join(p, "\n") }

func (p *problems) add(at, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if at != "" {
		text = at + ": " + text
	}
	*p = append(*p, text)
}

// err returns p, or nil when there is no problem.
func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

// decoder fills a config from a tree of YAML nodes. The library's strict mode
// is not enough: it knows no remedy, stops at the first problem of a kind, and
// its text shows Go types.
type decoder struct {
	file     string
	origin   map[*yaml.Node]string // nodes that an override put into the tree
	origins  map[string]string     // path → where its value came from
	problems problems
}

// pathKey makes a path usable as a map key. Names in a path may hold dots.
func pathKey(path []string) string { return strings.Join(path, "\x00") }

func dotted(path []string) string { return strings.Join(path, ".") }

func (d *decoder) at(n *yaml.Node) string {
	if o, ok := d.origin[n]; ok {
		return o
	}
	return fmt.Sprintf("%s:%d", d.file, n.Line)
}

func (d *decoder) add(n *yaml.Node, format string, args ...any) {
	d.problems.add(d.at(n), format, args...)
}

// decode walks n and v side by side. v keeps what it has where n says nothing.
func (d *decoder) decode(n *yaml.Node, v reflect.Value, path []string) {
	d.origins[pathKey(path)] = d.at(n)
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		d.add(n, "%s uses a YAML anchor or alias; write the value out", dotted(path))
	case n.Style&yaml.TaggedStyle != 0:
		d.add(n, "%s uses a YAML tag; write the value without", dotted(path))
	case v.Kind() == reflect.Struct:
		d.decodeStruct(n, v, path)
	case v.Kind() == reflect.Map:
		d.decodeMap(n, v, path)
	case v.Kind() == reflect.Slice:
		d.decodeSlice(n, v, path)
	default:
		d.decodeScalar(n, v, path)
	}
}

func (d *decoder) decodeStruct(n *yaml.Node, v reflect.Value, path []string) {
	d.eachPair(n, path, func(key, value *yaml.Node) {
		i := fieldIndex(v.Type(), key.Value)
		if i < 0 {
			d.unknownField(key, v.Type(), path)
			return
		}
		d.decode(value, v.Field(i), extend(path, key.Value))
	})
}

func (d *decoder) decodeMap(n *yaml.Node, v reflect.Value, path []string) {
	d.eachPair(n, path, func(key, value *yaml.Node) {
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
		entry := reflect.New(v.Type().Elem()).Elem()
		if e, ok := reflect.TypeAssert[interface{ setDefaults() }](entry.Addr()); ok {
			e.setDefaults()
		}
		at := extend(path, key.Value)
		d.decode(value, entry, at)
		// The entry's own line, not that of the value below it.
		if _, ok := d.origin[value]; !ok {
			d.origins[pathKey(at)] = d.at(key)
		}
		v.SetMapIndex(reflect.ValueOf(key.Value), entry)
	})
}

func (d *decoder) decodeSlice(n *yaml.Node, v reflect.Value, path []string) {
	if n.Kind != yaml.SequenceNode {
		d.add(n, "%s must be a list, such as [a, b]", dotted(path))
		return
	}
	for i, item := range n.Content {
		entry := reflect.New(v.Type().Elem()).Elem()
		d.decode(item, entry, extend(path, fmt.Sprint(i)))
		v.Set(reflect.Append(v, entry))
	}
}

func (d *decoder) decodeScalar(n *yaml.Node, v reflect.Value, path []string) {
	name := dotted(path)
	switch {
	case n.Kind != yaml.ScalarNode:
		d.add(n, "%s must be a single value, not a list or a section", name)
		return
	case n.ShortTag() == "!!null":
		d.add(n, "%s has no value; give it one or remove the line", name)
		return
	case !utf8.ValidString(n.Value): // from a flag or variable; a file cannot have it
		d.add(n, "%s is not valid UTF-8", name)
		return
	}
	switch p := v.Addr().Interface().(type) {
	case *string:
		*p = n.Value
	case *duration:
		parsed, err := parseDuration(n.Value)
		if err != nil {
			d.add(n, "%s: %v", name, err)
			return
		}
		*p = parsed
	case *bool:
		parsed, err := strconv.ParseBool(n.Value)
		if err != nil {
			d.add(n, "%s: %q is neither true nor false", name, n.Value)
		}
		*p = parsed
	case *int:
		// Not by the library, which reads 1.5 as 1.
		parsed, err := strconv.Atoi(n.Value)
		if err != nil {
			d.add(n, "%s: %q is not a whole number", name, n.Value)
		}
		*p = parsed
	default:
		panic(fmt.Sprintf("config field %s has the unsupported type %s", name, v.Type()))
	}
}

// eachPair calls f for each entry of a section. An empty section ("http:") is
// one with no entries.
func (d *decoder) eachPair(n *yaml.Node, path []string, f func(key, value *yaml.Node)) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		name := dotted(path)
		if name == "" {
			name = "the file"
		}
		d.add(n, "%s must be a section of \"name: value\" entries", name)
		return
	}
	first := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch seen := first[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			d.add(key, "a name in %s must be plain text", dotted(path))
		case key.ShortTag() == "!!merge":
			d.add(key, "merge keys are not supported; write the values out")
		case seen != nil:
			d.add(key, "%s is set twice, first at %s; remove one", dotted(extend(path, key.Value)), d.at(seen))
		default:
			first[key.Value] = key
			f(key, value)
		}
	}
}

func (d *decoder) unknownField(key *yaml.Node, t reflect.Type, path []string) {
	in := ""
	if len(path) > 0 {
		in = " in " + dotted(path)
	}
	names := fieldNames(t)
	if near := nearest(key.Value, names); near != "" {
		d.add(key, "unknown field %q%s; did you mean %q?", key.Value, in, near)
		return
	}
	d.add(key, "unknown field %q%s; known are %s", key.Value, in, strings.Join(names, ", "))
}

// extend returns path with name appended, sharing no memory with path.
func extend(path []string, name string) []string {
	return append(slices.Clip(path), name)
}

func fieldName(t reflect.Type, i int) string {
	name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
	return name
}

func fieldNames(t reflect.Type) []string {
	names := make([]string, t.NumField())
	for i := range names {
		names[i] = fieldName(t, i)
	}
	return names
}

func fieldIndex(t reflect.Type, name string) int {
	for i := range t.NumField() {
		if fieldName(t, i) == name {
			return i
		}
	}
	return -1
}

// parseYAML returns the mapping at the root of the file's only document; an
// empty file is an empty mapping.
func parseYAML(file string, text []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(strings.NewReader(string(text)))
	var doc, second yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: 1}, nil
	case err != nil:
		return nil, yamlError(file, err)
	}
	switch err := dec.Decode(&second); {
	case err == nil:
		return nil, fmt.Errorf("%s:%d: a second document begins here; the configuration is one document", file, second.Line)
	case !errors.Is(err, io.EOF):
		return nil, yamlError(file, err)
	}
	return doc.Content[0], nil
}

// yamlError puts the line where editors look for it: the library says
// "yaml: line 3: what is wrong".
func yamlError(file string, err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	var line int
	if n, _ := fmt.Sscanf(text, "line %d:", &line); n == 1 {
		_, text, _ = strings.Cut(text, ": ")
		return fmt.Errorf("%s:%d: not valid YAML: %s", file, line, text)
	}
	return fmt.Errorf("%s: not valid YAML: %s", file, text)
}
