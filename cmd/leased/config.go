package main

import (
	"fmt"
	"time"

	"leased/gateway"
)

// config is the configuration file, field by field. The yaml tags are the names
// in the file, in dotted flags (with "-" for "_") and, in upper case with "_"
// for ".", in LEASED_ variables.
//
// Fields of features that this release does not have are here too: a setting
// that is read and silently ignored is how a cluster comes to run without TLS.
//
// What is empty when it is not used is left out when the configuration is
// printed, so that the output can be used as a file.
type config struct {
	Node       nodeConfig                 `yaml:"node"`
	HTTP       httpConfig                 `yaml:"http"`
	Cluster    clusterConfig              `yaml:"cluster"`
	Backends   map[string]backendConfig   `yaml:"backends"`
	Namespaces map[string]namespaceConfig `yaml:"namespaces"`
	Auth       authConfig                 `yaml:"auth"`
	Insecure   bool                       `yaml:"insecure"`
	Log        logConfig                  `yaml:"log"`
	Audit      auditConfig                `yaml:"audit"`
}

type nodeConfig struct {
	ID      string `yaml:"id"`
	DataDir string `yaml:"data_dir"`
}

type httpConfig struct {
	Listen string        `yaml:"listen"`
	TLS    httpTLSConfig `yaml:"tls,omitempty"`
}

type httpTLSConfig struct {
	Cert     string `yaml:"cert"`
	Key      string `yaml:"key"`
	ClientCA string `yaml:"client_ca"`
}

type clusterConfig struct {
	Listen   string            `yaml:"listen"`
	Members  map[string]string `yaml:"members,omitempty"`
	Snapshot snapshotConfig    `yaml:"snapshot"`
	TLS      peerTLSConfig     `yaml:"tls,omitempty"`
}

type snapshotConfig struct {
	Entries  int      `yaml:"entries"`
	Interval duration `yaml:"interval"`
}

type peerTLSConfig struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
	CA   string `yaml:"ca"`
}

type namespaceConfig struct {
	Backend     string            `yaml:"backend"`
	TTL         ttlConfig         `yaml:"ttl"`
	MaxLifetime duration          `yaml:"max_lifetime"`
	MaxWait     duration          `yaml:"max_wait"`
	History     historyConfig     `yaml:"history"`
	Idempotency idempotencyConfig `yaml:"idempotency"`
	Quotas      quotasConfig      `yaml:"quotas"`
	Fallback    fallbackConfig    `yaml:"fallback,omitempty"`
}

type ttlConfig struct {
	Min     duration `yaml:"min"`
	Default duration `yaml:"default"`
	Max     duration `yaml:"max"`
}

type historyConfig struct {
	Keep   duration `yaml:"keep"`
	PerKey int      `yaml:"per_key"`
}

type idempotencyConfig struct {
	Keep duration `yaml:"keep"`
}

type quotasConfig struct {
	LeasesPerOwner int `yaml:"leases_per_owner"`
	WaitersPerKey  int `yaml:"waiters_per_key"`
}

type fallbackConfig struct {
	Backend  string   `yaml:"backend"`
	After    duration `yaml:"after"`
	HoldDown duration `yaml:"hold_down"`
	Return   string   `yaml:"return"`
}

type authConfig struct {
	Mode     string                  `yaml:"mode"`
	KeysFile string                  `yaml:"keys_file,omitempty"`
	JWT      jwtConfig               `yaml:"jwt,omitempty"`
	Roles    map[string][]ruleConfig `yaml:"roles,omitempty"`
}

type jwtConfig struct {
	Issuer         string `yaml:"issuer"`
	Audience       string `yaml:"audience"`
	JWKSFile       string `yaml:"jwks_file"`
	JWKSURL        string `yaml:"jwks_url"`
	PrincipalClaim string `yaml:"principal_claim"`
	RoleClaim      string `yaml:"role_claim"`
}

type ruleConfig struct {
	Namespaces []string `yaml:"namespaces"`
	Tenants    []string `yaml:"tenants"`
	Actors     []string `yaml:"actors"`
	Verbs      []string `yaml:"verbs"`
}

type logConfig struct {
	Level  string `yaml:"level"`
	Format string `yaml:"format"`
}

type auditConfig struct {
	File string `yaml:"file"`
}

// Names and values that the configuration and the code agree on.
const (
	defaultNamespace = "default"
	defaultBackend   = "local"
	authNone         = "none"
)

// defaultConfig is what a server runs on that is told nothing: one node, its
// data in the working directory, reachable from this machine only.
func defaultConfig() config {
	return config{
		Node:    nodeConfig{ID: "n1", DataDir: "./leased-data"},
		HTTP:    httpConfig{Listen: "127.0.0.1:8470"},
		Cluster: clusterConfig{Snapshot: snapshotConfig{Entries: 8192, Interval: duration(2 * time.Minute)}},
		Auth:    authConfig{Mode: authNone},
		Log:     logConfig{Level: "info", Format: "text"},
	}
}

// setDefaults fills what a namespace leaves out. It runs before the file is
// read, so that an explicit zero is told from an absent value.
func (ns *namespaceConfig) setDefaults() {
	p := gateway.DefaultPolicy()
	*ns = namespaceConfig{
		TTL:         ttlConfig{Min: duration(p.TTL.Min), Default: duration(p.TTL.Default), Max: duration(p.TTL.Max)},
		MaxLifetime: duration(p.MaxLifetime),
		MaxWait:     duration(p.MaxWait),
		History:     historyConfig{Keep: duration(p.History.Keep), PerKey: p.History.PerKey},
		Idempotency: idempotencyConfig{Keep: duration(p.Idempotency.Keep)},
		Quotas:      quotasConfig{LeasesPerOwner: p.Quotas.LeasesPerOwner, WaitersPerKey: p.Quotas.WaitersPerKey},
	}
}

// policy returns the namespace's policy as the gateway takes it.
func (ns *namespaceConfig) policy() gateway.Policy {
	return gateway.Policy{
		TTL: gateway.TTLPolicy{
			Min: time.Duration(ns.TTL.Min), Default: time.Duration(ns.TTL.Default), Max: time.Duration(ns.TTL.Max),
		},
		MaxLifetime: time.Duration(ns.MaxLifetime),
		MaxWait:     time.Duration(ns.MaxWait),
		History:     gateway.HistoryPolicy{Keep: time.Duration(ns.History.Keep), PerKey: ns.History.PerKey},
		Idempotency: gateway.IdempotencyPolicy{Keep: time.Duration(ns.Idempotency.Keep)},
		Quotas:      gateway.QuotaPolicy{LeasesPerOwner: ns.Quotas.LeasesPerOwner, WaitersPerKey: ns.Quotas.WaitersPerKey},
	}
}

// duration is a time.Duration written as in Go: 1s, 500ms, 168h.
type duration time.Duration

// String returns the duration in the form that the file takes.
func (d duration) String() string { return time.Duration(d).String() }

// MarshalYAML writes what the file would say.
func (d duration) MarshalYAML() (any, error) { return d.String(), nil }

// notDuration is what a text is told that should be one.
const notDuration = "is not a duration; write a number with a unit, such as 500ms, 30s, 5m or 168h"

func parseDuration(s string) (duration, error) {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q %s", s, notDuration)
	case d < 0:
		return 0, fmt.Errorf("%s is negative; write a duration such as 30s", s)
	}
	return duration(d), nil
}
