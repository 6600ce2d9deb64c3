package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"leased/backends/etcd"
	"leased/backends/valkey"
	"leased/contract"
)

// closeRemoteTimeout bounds the goodbye to one server: one that does not answer
// must not use up the time that the other stores need.
const closeRemoteTimeout = 2 * time.Second

// openValkey opens a store on a Valkey server. That the server is down is no
// reason to fail: the store finds it when it is there.
func openValkey(ctx context.Context, a *app, name string) (contract.Store, error) {
	cfg, err := a.settings.Backends[name].valkey()
	if err != nil {
		return nil, err
	}
	cfg.Observer, cfg.Logger = a.observer.observe, a.backendLog(name)
	store, err := valkey.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	a.pushRemote(name, store)
	return store, nil
}

// openEtcd opens a store on an etcd cluster; see openValkey.
func openEtcd(ctx context.Context, a *app, name string) (contract.Store, error) {
	cfg, err := a.settings.Backends[name].etcd()
	if err != nil {
		return nil, err
	}
	cfg.Observer, cfg.Logger = a.observer.observe, a.backendLog(name)
	store, err := etcd.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	a.pushRemote(name, store)
	return store, nil
}

func (a *app) pushRemote(name string, store contract.Store) {
	a.cleanups.push("store of backend "+name, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, closeRemoteTimeout)
		defer cancel()
		return store.Close(ctx)
	})
}

// backendLog returns a logger whose lines name the backend, and says once when a
// password leaves the machine in clear text.
func (a *app) backendLog(name string) *slog.Logger {
	log := a.log.With("backend", name)
	b := a.settings.Backends[name]
	if b.PasswordFile == "" || b.TLS.on() {
		return log
	}
	for _, server := range append(b.Addresses, b.Endpoints...) {
		if !isLoopback(server) {
			log.Warn("the password travels in clear text; set tls")
			break
		}
	}
	return log
}

// valkey returns the configuration of the store, with the files read that it
// names.
func (b backendConfig) valkey() (valkey.Config, error) {
	cfg := valkey.Config{
		Addresses: b.Addresses, Username: b.Username, SentinelMaster: b.SentinelMaster, SentinelUsername: b.SentinelUsername,
		ReplicaAcks: b.ReplicaAcks, ReplicaTimeout: time.Duration(b.ReplicaAckTimeout),
	}
	if b.Prefix != "" {
		cfg.Prefix = b.Prefix + ":"
	}
	var err error
	if cfg.Password, err = readPassword(b.PasswordFile); err != nil {
		return cfg, fmt.Errorf("password_file: %w", err)
	}
	if cfg.SentinelPassword, err = readPassword(b.SentinelPasswordFile); err != nil {
		return cfg, fmt.Errorf("sentinel_password_file: %w", err)
	}
	cfg.TLS, err = b.TLS.load()
	return cfg, err
}

// etcd is valkey for an etcd store.
func (b backendConfig) etcd() (etcd.Config, error) {
	scheme := "http://"
	if b.TLS.on() {
		scheme = "https://"
	}
	cfg := etcd.Config{Username: b.Username, Prefix: b.Prefix}
	for _, server := range b.Endpoints {
		cfg.Endpoints = append(cfg.Endpoints, scheme+server)
	}
	var err error
	if cfg.Password, err = readPassword(b.PasswordFile); err != nil {
		return cfg, fmt.Errorf("password_file: %w", err)
	}
	cfg.TLS, err = b.TLS.load()
	return cfg, err
}
