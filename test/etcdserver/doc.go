// Command etcdserver is the etcd server that the tests start. It is a module of
// its own so that the server's dependencies stay out of the product's, and it
// pins the version: test/setup.sh builds it into bin/tools/etcd.
package main
