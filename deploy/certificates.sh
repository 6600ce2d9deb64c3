#!/usr/bin/env bash
# Makes a certificate authority and, signed by it, a certificate for each node:
#
#     deploy/certificates.sh DIR n1 n2 n3
#
# A certificate holds the node's id as its name, which is what nodes compare, and is
# used both ways. The authority's key, DIR/ca.key, signs further nodes: it is needed
# on no node, keep it elsewhere. What is there is kept, so that a run with one more
# name adds one, and a node's certificate is renewed by deleting its files first.
# Nodes take renewed files into use without a restart.
set -euo pipefail

[ $# -ge 2 ] || { echo "usage: $0 DIR NODE_ID..." >&2; exit 2; }
dir=$1
shift
days=${DAYS:-825}
umask 077
mkdir -p "$dir"

if [ ! -e "$dir/ca.pem" ]; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
    -subj "/CN=leased cluster" -addext "keyUsage=critical,keyCertSign,cRLSign" \
    -keyout "$dir/ca.key" -out "$dir/ca.pem" 2>/dev/null
fi
for node in "$@"; do
  [ ! -e "$dir/$node.pem" ] || continue
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$node" \
    -keyout "$dir/$node.key" -out "$dir/$node.csr" 2>/dev/null
  openssl x509 -req -in "$dir/$node.csr" -CA "$dir/ca.pem" -CAkey "$dir/ca.key" -CAcreateserial -days "$days" \
    -extfile <(printf 'subjectAltName=DNS:%s\nextendedKeyUsage=serverAuth,clientAuth\nkeyUsage=critical,digitalSignature\n' "$node") \
    -out "$dir/$node.pem" 2>/dev/null
  rm "$dir/$node.csr"
done
