package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
)

// The types of backend.
const (
	backendRaftKV = "raftkv"
	backendValkey = "valkey"
	backendEtcd   = "etcd"
)

// Bounds of a valkey backend.
const (
	maxReplicaAcks       = 16
	maxReplicaAckTimeout = time.Minute
)

// backendConfig holds the settings of every type of backend; each type takes
// some of them, see backendSettings.
type backendConfig struct {
	Type                 string           `yaml:"type"`
	Addresses            []string         `yaml:"addresses,omitempty"`
	Endpoints            []string         `yaml:"endpoints,omitempty"`
	Username             string           `yaml:"username,omitempty"`
	PasswordFile         string           `yaml:"password_file,omitempty"`
	TLS                  backendTLSConfig `yaml:"tls,omitempty"`
	Prefix               string           `yaml:"prefix,omitempty"`
	SentinelMaster       string           `yaml:"sentinel_master,omitempty"`
	SentinelUsername     string           `yaml:"sentinel_username,omitempty"`
	SentinelPasswordFile string           `yaml:"sentinel_password_file,omitempty"`
	ReplicaAcks          int              `yaml:"replica_acks,omitempty"`
	ReplicaAckTimeout    duration         `yaml:"replica_ack_timeout,omitempty"`
}

// backendTLSConfig says how a server of others is reached. Any of ca, cert and
// key turns TLS on; enabled turns it on with the machine's own roots.
type backendTLSConfig struct {
	Enabled    bool   `yaml:"enabled"`
	CA         string `yaml:"ca"`
	Cert       string `yaml:"cert"`
	Key        string `yaml:"key"`
	ServerName string `yaml:"server_name"`
}

// on reports whether the server is spoken to with TLS.
func (c backendTLSConfig) on() bool { return c.Enabled || c.CA != "" || c.Cert != "" }

// load returns what to connect with, nil for plain text.
func (c backendTLSConfig) load() (*tls.Config, error) {
	if !c.on() {
		return nil, nil //nolint:nilnil // no TLS is a valid configuration
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName}
	if c.CA != "" {
		text, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("tls.ca: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("tls.ca: %s holds no certificate in PEM", c.CA)
		}
	}
	if c.Cert != "" {
		cert, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("tls.cert: %w", err)
		}
		out.Certificates = []tls.Certificate{cert}
	}
	return out, nil
}

// readPassword returns the password in file, or "" when there is no file. One
// line break at its end is dropped, as editors leave it; white space may be part
// of a password.
func readPassword(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	password := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if password == "" {
		return "", fmt.Errorf("%s is empty", file)
	}
	return password, nil
}

// backendSettings returns the settings that a type takes, type itself aside.
func backendSettings(kind string) (fields []string, known bool) {
	switch kind {
	case backendRaftKV:
		return nil, true
	case backendValkey:
		return []string{
			"addresses", "username", "password_file", "tls", "prefix", "sentinel_master", "sentinel_username",
			"sentinel_password_file", "replica_acks", "replica_ack_timeout",
		}, true
	case backendEtcd:
		return []string{"endpoints", "username", "password_file", "tls", "prefix"}, true
	}
	return nil, false
}

func (s *settings) validateBackends(p *problems) {
	var raft []string
	for _, name := range slices.Sorted(maps.Keys(s.Backends)) {
		if err := checkName(name); err != nil {
			p.add(s.at("backends", name), "the backend's name %v", err)
		}
		if s.Backends[name].Type == backendRaftKV {
			raft = append(raft, name)
		}
		s.validateBackend(p, name)
	}
	switch {
	case len(raft) > 1:
		p.add(s.at("backends", raft[1]), "backends.%s: a node has one raft store and backends.%s is it; give both namespaces that backend",
			raft[1], raft[0])
	case len(raft) == 0 && s.clusterIsUsed():
		p.add(s.at("cluster"), "cluster has no effect: no backend has the type %s; remove it, or add such a backend", backendRaftKV)
	}
}

// clusterIsUsed reports whether the section wants something of the raft node.
func (s *settings) clusterIsUsed() bool {
	c := &s.Cluster
	return c.Listen != "" || len(c.Members) > 0 || c.TLS != (peerTLSConfig{}) || s.isSet("cluster", "snapshot")
}

func (s *settings) validateBackend(p *problems, name string) {
	b, path := s.Backends[name], "backends."+name
	fields, known := backendSettings(b.Type)
	switch {
	case b.Type == "":
		p.add(s.at("backends", name), "%s has no type; use %s, %s or %s", path, backendRaftKV, backendValkey, backendEtcd)
		return
	case !known:
		p.add(s.at("backends", name, "type"), "%s: unknown type %q; use %s, %s or %s",
			path, b.Type, backendRaftKV, backendValkey, backendEtcd)
		return
	}
	if b.Type == backendRaftKV {
		if len(s.foreignSettings(name, nil)) > 0 {
			p.add(s.at("backends", name), "%s: a raftkv backend is part of this process and takes no setting but type; remove the others", path)
		}
		return
	}
	for _, field := range s.foreignSettings(name, fields) {
		p.add(s.at("backends", name, field), "%s.%s is no setting of a backend of type %s, which takes %s; remove it",
			path, field, b.Type, strings.Join(fields, ", "))
	}
	switch b.Type {
	case backendValkey:
		s.validateValkey(p, name)
	case backendEtcd:
		s.checkServers(p, name, "endpoints", b.Endpoints)
	}
	s.validateBackendTLS(p, name)
	if b.Prefix != "" {
		if err := checkName(b.Prefix); err != nil {
			p.add(s.at("backends", name, "prefix"), "%s.prefix %v", path, err)
		}
	}
	if b.PasswordFile == "" && b.Username != "" {
		p.add(s.at("backends", name, "username"), "%s.username has no password_file beside it; name the file that holds the password", path)
	}
}

// foreignSettings returns the settings of a backend that are not among fields
// and say something.
func (s *settings) foreignSettings(name string, fields []string) []string {
	b := s.Backends[name]
	var foreign []string
	for field, says := range map[string]bool{
		"addresses": len(b.Addresses) > 0, "endpoints": len(b.Endpoints) > 0, "username": b.Username != "",
		"password_file": b.PasswordFile != "", "tls": b.TLS != (backendTLSConfig{}), "prefix": b.Prefix != "",
		"sentinel_master": b.SentinelMaster != "", "sentinel_username": b.SentinelUsername != "",
		"sentinel_password_file": b.SentinelPasswordFile != "", "replica_acks": b.ReplicaAcks != 0,
		"replica_ack_timeout": b.ReplicaAckTimeout != 0,
	} {
		if says && !slices.Contains(fields, field) {
			foreign = append(foreign, field)
		}
	}
	slices.Sort(foreign)
	return foreign
}

func (s *settings) validateValkey(p *problems, name string) {
	b, path := s.Backends[name], "backends."+name
	s.checkServers(p, name, "addresses", b.Addresses)
	if b.SentinelMaster == "" && b.SentinelUsername+b.SentinelPasswordFile != "" {
		p.add(s.at("backends", name), "%s: sentinel_username and sentinel_password_file need sentinel_master, the name under which the sentinels know the primary",
			path)
	}
	if b.SentinelPasswordFile == "" && b.SentinelUsername != "" {
		p.add(s.at("backends", name, "sentinel_username"),
			"%s.sentinel_username has no sentinel_password_file beside it; name the file that holds the password", path)
	}
	if b.ReplicaAcks < 0 || b.ReplicaAcks > maxReplicaAcks {
		p.add(s.at("backends", name, "replica_acks"),
			"%s.replica_acks is %d; it is how many replicas must have a grant before it is answered: 0, for none, to %d", path, b.ReplicaAcks, maxReplicaAcks)
	}
	switch wait := time.Duration(b.ReplicaAckTimeout); {
	case wait != 0 && b.ReplicaAcks == 0:
		p.add(s.at("backends", name, "replica_ack_timeout"), "%s.replica_ack_timeout has no effect without replica_acks; set that, or remove this", path)
	case wait != 0 && (wait < time.Millisecond || wait > maxReplicaAckTimeout):
		p.add(s.at("backends", name, "replica_ack_timeout"), "%s.replica_ack_timeout is %v; it must be 1ms to %v", path, wait, maxReplicaAckTimeout)
	}
}

// checkServers holds a list of servers to the form host:port. A URL is taken
// apart here, so that a password in it is refused by name and never printed.
func (s *settings) checkServers(p *problems, name, field string, servers []string) {
	path := "backends." + name + "." + field
	if len(servers) == 0 {
		p.add(s.at("backends", name), "%s is missing; list the servers, such as [127.0.0.1:%s]", path, defaultPort(s.Backends[name].Type))
	}
	seen := map[string]bool{}
	for i, server := range servers {
		at := s.at("backends", name, field, fmt.Sprint(i))
		switch err := checkServer(server); {
		case err != nil:
			p.add(at, "%s: %v", path, err)
		case seen[server]:
			p.add(at, "%s names %s twice; remove one", path, server)
		}
		seen[server] = true
	}
}

func defaultPort(kind string) string {
	if kind == backendEtcd {
		return "2379"
	}
	return "6379"
}

// checkServer refuses what is not host:port. It shows nothing of a text that
// may hold a password.
func checkServer(server string) error {
	switch {
	case strings.Contains(server, "@"):
		return errors.New("an address holds a user name or password; put them into username and password_file")
	case strings.Contains(server, "://"):
		rest := server[strings.Index(server, "://")+len("://"):]
		if u, err := url.Parse(server); err == nil && u.Host != "" {
			rest = u.Host
		}
		return fmt.Errorf("an address is host:port and no URL; write %q, and say tls: {enabled: true} for TLS", rest)
	}
	host, port, err := net.SplitHostPort(server)
	if err != nil || host == "" || checkAddress(server) != nil || port == "0" {
		return fmt.Errorf("%q is not host:port, such as 127.0.0.1:6379", server)
	}
	return nil
}

func (s *settings) validateBackendTLS(p *problems, name string) {
	t, path := s.Backends[name].TLS, "backends."+name
	at := s.at("backends", name, "tls")
	switch {
	case (t.Cert == "") != (t.Key == ""):
		p.add(at, "%s.tls needs both cert and key; give the missing one, or remove both to connect without a certificate of one's own", path)
	case !t.Enabled && s.isSet("backends", name, "tls", "enabled") && (t.CA != "" || t.Cert != ""):
		p.add(at, "%s.tls.enabled is false and ca or cert is given; remove one of the two", path)
	case !t.on() && t.ServerName != "":
		p.add(at, "%s.tls.server_name has no effect without TLS; set enabled: true, or remove it", path)
	}
}
