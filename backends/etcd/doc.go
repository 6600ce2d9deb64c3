// Package etcd is the lease store on an etcd that exists already.
package etcd
