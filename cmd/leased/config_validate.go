package main

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"leased/contract"
	"leased/gateway"
)

// validate refuses what cannot work, naming where it was said and what to do.
func (s *settings) validate() error {
	var p problems
	s.validateNode(&p)
	s.validateHTTP(&p)
	s.validateCluster(&p)
	s.validateBackends(&p)
	for _, name := range slices.Sorted(maps.Keys(s.Namespaces)) {
		s.validateNamespace(&p, name)
	}
	s.validateAuth(&p)
	s.validateLog(&p)
	return p.err()
}

func (s *settings) validateNode(p *problems) {
	if err := checkName(s.Node.ID); err != nil {
		p.add(s.at("node", "id"), "node.id %v", err)
	}
	if s.Node.DataDir == "" {
		p.add(s.at("node", "data_dir"), "node.data_dir is empty; name the directory that the node keeps its data in")
	}
}

func (s *settings) validateHTTP(p *problems) {
	if err := checkAddress(s.HTTP.Listen); err != nil {
		p.add(s.at("http", "listen"), "http.listen: %v", err)
	} else if s.Auth.Mode == authNone && !s.Insecure && !isLoopback(s.HTTP.Listen) {
		p.add(s.at("http", "listen"), "http.listen is %s, which other machines can reach, and auth.mode is none: "+
			"anyone there could take and revoke leases; listen on 127.0.0.1, or set insecure: true if something else protects the port",
			s.HTTP.Listen)
	}
	cert, key := s.HTTP.TLS.Cert != "", s.HTTP.TLS.Key != ""
	if cert != key {
		p.add(s.at("http", "tls"), "http.tls needs both cert and key; give the missing one, or remove both for plain HTTP")
	}
	if s.HTTP.TLS.ClientCA != "" {
		p.add(s.at("http", "tls", "client_ca"), "http.tls.client_ca: client certificates are %s", notInThisRelease)
	}
}

func (s *settings) validateCluster(p *problems) {
	c := &s.Cluster
	s.validatePeerPort(p)
	if _, self := c.Members[s.Node.ID]; len(c.Members) > 0 && !self {
		p.add(s.at("cluster", "members"), "cluster.members does not name this node, %s; add it with the address at which the others reach it, or set node.id", s.Node.ID)
	}
	for name, address := range c.Members {
		if err := checkAddress(address); err != nil {
			p.add(s.at("cluster", "members", name), "cluster.members.%s: %v", name, err)
		}
	}
	if c.Snapshot.Entries < 1 {
		p.add(s.at("cluster", "snapshot", "entries"), "cluster.snapshot.entries must be at least 1, not %d", c.Snapshot.Entries)
	}
	if time.Duration(c.Snapshot.Interval) < time.Second {
		p.add(s.at("cluster", "snapshot", "interval"), "cluster.snapshot.interval must be at least 1s, not %s", c.Snapshot.Interval)
	}
}

// validatePeerPort holds the port for other nodes to being protected where they
// are: whoever reaches it can do anything.
func (s *settings) validatePeerPort(p *problems) {
	c := &s.Cluster
	hasTLS := c.TLS != (peerTLSConfig{})
	if hasTLS && (c.TLS.Cert == "" || c.TLS.Key == "" || c.TLS.CA == "") {
		p.add(s.at("cluster", "tls"), "cluster.tls needs cert, key and ca, because each node checks the others; give the missing ones, or remove all three and listen on 127.0.0.1")
	}
	if c.Listen == "" {
		switch {
		case len(c.Members) > 1:
			p.add(s.at("cluster", "members"), "cluster.members names %d nodes and cluster.listen is empty; set it to the address at which this node listens for the others, such as 127.0.0.1:8471", len(c.Members))
		case hasTLS:
			p.add(s.at("cluster", "tls"), "cluster.tls has no effect without cluster.listen; set that, or remove this")
		}
		return
	}
	if err := checkAddress(c.Listen); err != nil {
		p.add(s.at("cluster", "listen"), "cluster.listen: %v", err)
	} else if !hasTLS && !isLoopback(c.Listen) {
		p.add(s.at("cluster", "listen"), "cluster.listen is %s, which other machines can reach, and there is no cluster.tls: "+
			"anyone there could take and end leases; give cert, key and ca, or listen on 127.0.0.1", c.Listen)
	}
}

func (s *settings) validateNamespace(p *problems, name string) {
	ns, path := s.Namespaces[name], "namespaces."+name
	if err := checkName(name); err != nil {
		p.add(s.at("namespaces", name), "the namespace's name %v", err)
	} else if err := gateway.ValidateNamespaceName(name); err != nil {
		p.add(s.at("namespaces", name), "the namespace's name %q %v", name, err)
	}
	known := slices.Sorted(maps.Keys(s.Backends))
	if _, ok := s.Backends[ns.Backend]; !ok && ns.Backend == "" {
		p.add(s.at("namespaces", name), "%s has no backend; use one of %s", path, strings.Join(known, ", "))
	} else if !ok {
		p.add(s.at("namespaces", name, "backend"), "%s.backend: there is no backend %q; use one of %s, or add it under backends",
			path, ns.Backend, strings.Join(known, ", "))
	}
	if s.isSet("namespaces", name, "fallback") {
		p.add(s.at("namespaces", name, "fallback"), "%s.fallback is %s", path, notInThisRelease)
	}
	policy := ns.policy()
	if err := policy.Validate(); err != nil {
		s.addPolicy(p, name, err)
	}
}

// addPolicy adds what the gateway says of a namespace's policy, at the place
// that set it. A default that another setting makes impossible stands nowhere in
// the file, so the remedy is to write it there.
func (s *settings) addPolicy(p *problems, name string, err error) {
	wrong, ok := errors.AsType[*contract.Error](err)
	if !ok {
		p.add(s.at("namespaces", name), "namespaces.%s: %v", name, err)
		return
	}
	path := append([]string{"namespaces", name}, strings.Split(wrong.Field, ".")...)
	remedy := ""
	if !s.isSet(path...) {
		remedy = "; that is its default, so set it too"
	}
	p.add(s.at(path...), "%s %s%s", dotted(path), wrong.Detail, remedy)
}

func (s *settings) validateAuth(p *problems) {
	switch s.Auth.Mode {
	case authNone:
	case "keys", "jwt":
		p.add(s.at("auth", "mode"), "auth.mode: %s is %s; use none, and keep the server on loopback", s.Auth.Mode, notInThisReleaseBare)
		return
	default:
		p.add(s.at("auth", "mode"), "auth.mode: unknown mode %q; use none", s.Auth.Mode)
		return
	}
	for _, field := range []string{"keys_file", "jwt", "roles"} {
		if s.isSet("auth", field) {
			p.add(s.at("auth", field), "auth.%s has no effect while auth.mode is none; remove it", field)
		}
	}
}

func (s *settings) validateLog(p *problems) {
	if levels := []string{"debug", "info", "warn", "error"}; !slices.Contains(levels, s.Log.Level) {
		p.add(s.at("log", "level"), "log.level: unknown level %q; use %s", s.Log.Level, strings.Join(levels, ", "))
	}
	if formats := []string{"text", "json"}; !slices.Contains(formats, s.Log.Format) {
		p.add(s.at("log", "format"), "log.format: unknown format %q; use %s", s.Log.Format, strings.Join(formats, " or "))
	}
}

const (
	notInThisReleaseBare = "not in this release"
	notInThisRelease     = notInThisReleaseBare + "; remove it"
)

// checkName refuses a name that could not stand in a URL path, a metric label
// and the name of a variable alike.
func checkName(name string) error {
	if name == "" || len(name) > 64 {
		return fmt.Errorf("must have 1 to 64 characters, not %d", len(name))
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case i > 0 && (c == '-' || c == '_' || c == '.'):
		default:
			return fmt.Errorf("%q must be letters and digits, and \".\", \"_\" or \"-\" after the first of them", name)
		}
	}
	return nil
}

func checkAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is not host:port, such as 127.0.0.1:8470", address)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("%q has no port from 0 to 65535", address)
	}
	return nil
}

// isLoopback reports whether only this machine can reach the address. A host
// name other than localhost may resolve to anything, so it does not count.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
