package main

import (
	"fmt"
	"io"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
)

// announcement is what a server tells whoever started it, once it serves.
type announcement struct {
	version    string
	node       string
	listen     string // as bound, so that port 0 has become one
	tls        bool
	dataDir    string   // of the raft node; empty when none runs
	backends   []string // "name (type)" of those on servers of others, sorted
	namespaces []string // sorted
}

func (a *app) announcement(version, listen string) announcement {
	n := announcement{
		version: version, node: a.settings.Node.ID, listen: listen, tls: a.settings.HTTP.TLS.Cert != "",
		namespaces: slices.Sorted(maps.Keys(a.settings.Namespaces)),
	}
	for _, name := range a.settings.usedBackends() {
		if kind := a.settings.Backends[name].Type; kind != backendRaftKV {
			n.backends = append(n.backends, name+" ("+kind+")")
			continue
		}
		var err error
		if n.dataDir, err = filepath.Abs(a.settings.Node.DataDir); err != nil {
			n.dataDir = a.settings.Node.DataDir
		}
	}
	return n
}

// print prints the announcement. Both commands at its end work as they stand,
// pasted into a shell on this machine.
func (n announcement) print(w io.Writer) error {
	namespace := n.namespaces[0]
	if slices.Contains(n.namespaces, defaultNamespace) {
		namespace = defaultNamespace
	}
	flags := ""
	if n.url() != defaultServer {
		flags += " --server " + n.url()
	}
	if namespace != defaultNamespace {
		flags += " --namespace " + namespace
	}
	stores := ""
	if n.dataDir != "" {
		stores += "\n  data in       " + n.dataDir
	}
	if len(n.backends) > 0 {
		stores += "\n  backends      " + strings.Join(n.backends, ", ")
	}
	_, err := fmt.Fprintf(w, `leased %s, node %s
  listening on  %s%s
  namespaces    %s

Take a lease with either of these:
  curl -sS %s/v1/namespaces/%s/leases -H 'Content-Type: application/json' -d '%s'
  leased acquire%s --tenant acme --target domain:example.com --actor crawler
`, n.version, n.node, n.listening(), stores, strings.Join(n.namespaces, ", "), n.url(), namespace,
		`{"key":{"tenant":"acme","target":{"type":"domain","id":"example.com"},"actor":"crawler"},"instance":"me"}`, flags)
	return err
}

// listening returns the address as it is, with a warning where it is more than
// this machine's own.
func (n announcement) listening() string {
	if isLoopback(n.listen) {
		return n.url()
	}
	return n.scheme() + n.listen + " (open to other machines)"
}

func (n announcement) scheme() string {
	if n.tls {
		return "https://"
	}
	return "http://"
}

// url returns where this machine reaches the server: an address that stands for
// all of the machine's is none to connect to.
func (n announcement) url() string {
	host, port, err := net.SplitHostPort(n.listen)
	if err != nil {
		return n.scheme() + n.listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return n.scheme() + net.JoinHostPort(host, port)
}
