package cluster

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

const (
	// peerMagic and peerVersion are the first bytes on a connection, both ways. A
	// node that speaks another version answers in its own, with a reason.
	peerMagic         = "LSD"
	peerVersion  byte = 1
	maxHello          = 4096
	helloTimeout      = 2 * time.Second
)

// protocol is what a connection is for.
type protocol string

const (
	// protoRaft carries raft's messages. Both ends must be members by then: a vote
	// that was given before the identity was on disk would be forgotten.
	protoRaft protocol = "raft"
	// protoCalls carries what the node's owner sends to other nodes, as HTTP.
	protoCalls protocol = "calls"
	// protoMembers carries this package's own questions, as HTTP. It is the only
	// one that a node may speak that belongs to no cluster yet.
	protoMembers protocol = "members"
)

// hello opens a connection. The dialer says who it is and whom it means.
type hello struct {
	Protocol protocol `json:"protocol,omitempty"`
	// Cluster is empty for a node that belongs to none yet.
	Cluster string `json:"cluster,omitempty"`
	// From is the server id of whoever sends it.
	From string `json:"from"`
	// To is a server id for raft, a node id otherwise.
	To string `json:"to,omitempty"`
	// Address is where the sender can be reached, empty if it does not know.
	Address string `json:"address,omitempty"`
	// Refused says in an answer why there is no connection.
	Refused string `json:"refused,omitempty"`
	Code    string `json:"code,omitempty"`
}

// Why a connection is refused.
const (
	codeVersion  = "version"
	codeCluster  = "foreign_cluster"
	codeNode     = "wrong_node"
	codeFounding = "not_a_member"
	codeIdentity = "identity"
	codeBusy     = "busy"
)

// refusal is a peer's no to a connection.
type refusal struct {
	code, reason string
}

// Error implements error.
func (r *refusal) Error() string { return "refused by the peer: " + r.reason }

// writeHello sends h as one frame.
func writeHello(w io.Writer, h hello) error {
	content, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if len(content) > maxHello {
		return fmt.Errorf("handshake of %d bytes, at most %d are allowed", len(content), maxHello)
	}
	frame := append([]byte(peerMagic), peerVersion)
	frame = binary.BigEndian.AppendUint16(frame, uint16(len(content)))
	_, err = w.Write(append(frame, content...))
	return err
}

// readHello reads one frame and not a byte more: what follows belongs to the
// protocol.
func readHello(r io.Reader) (hello, error) {
	var head [len(peerMagic) + 1]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return hello{}, err
	}
	if string(head[:len(peerMagic)]) != peerMagic {
		return hello{}, fmt.Errorf("not a leased peer: it began with %q", head[:])
	}
	if version := head[len(peerMagic)]; version != peerVersion {
		return hello{}, &refusal{codeVersion, fmt.Sprintf("peer protocol version %d, this node speaks %d", version, peerVersion)}
	}
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return hello{}, err
	}
	n := binary.BigEndian.Uint16(size[:])
	if n > maxHello {
		return hello{}, fmt.Errorf("handshake of %d bytes, at most %d are allowed", n, maxHello)
	}
	content := make([]byte, n)
	if _, err := io.ReadFull(r, content); err != nil {
		return hello{}, err
	}
	var h hello
	// Unknown fields are let through: a later release may add some that an older
	// one can do without. One that it cannot do without is a new version.
	if err := json.NewDecoder(bytes.NewReader(content)).Decode(&h); err != nil {
		return hello{}, fmt.Errorf("handshake: %w", err)
	}
	return h, nil
}

// membership is what a node is to others at a moment.
type membership struct {
	serverID  string
	clusterID string
	// member is set once the identity on disk says so.
	member bool
}

// judge answers an opening hello: nil, or why not.
func (m membership) judge(h hello) *refusal {
	node := nodeOf(m.serverID)
	if err := checkNodeID(nodeOf(h.From)); err != nil {
		return &refusal{codeNode, err.Error()}
	}
	if nodeOf(h.From) == node {
		return &refusal{codeNode, fmt.Sprintf("this is %s too: two nodes have the same id, or a node called itself", m.serverID)}
	}
	if h.To != m.serverID && (h.Protocol == protoRaft || h.To != node) {
		return &refusal{codeNode, fmt.Sprintf("this is %s, not %s", m.serverID, h.To)}
	}
	switch h.Protocol {
	case protoRaft, protoCalls:
		switch {
		case !m.member:
			return &refusal{codeFounding, fmt.Sprintf("node %s does not belong to a cluster yet", node)}
		case h.Cluster != m.clusterID:
			return &refusal{codeCluster, fmt.Sprintf("node %s belongs to cluster %q, not to %q", node, m.clusterID, h.Cluster)}
		}
	case protoMembers:
		if h.Cluster != "" && m.member && h.Cluster != m.clusterID {
			return &refusal{codeCluster, fmt.Sprintf("node %s belongs to cluster %q, not to %q", node, m.clusterID, h.Cluster)}
		}
	default:
		return &refusal{codeVersion, fmt.Sprintf("unknown protocol %q", h.Protocol)}
	}
	return nil
}

// greet does the dialer's half of the handshake and returns the peer's answer.
func (m membership) greet(conn net.Conn, p protocol, to, address string) (hello, error) {
	cluster := ""
	if m.member {
		cluster = m.clusterID
	}
	if err := writeHello(conn, hello{Protocol: p, Cluster: cluster, From: m.serverID, To: to, Address: address}); err != nil {
		return hello{}, err
	}
	answer, err := readHello(conn)
	if err != nil {
		return hello{}, err
	}
	if answer.Refused != "" {
		return answer, &refusal{answer.Code, answer.Refused}
	}
	// The peer has looked as well; this one is for its mistakes.
	if answer.From != to && (p == protoRaft || nodeOf(answer.From) != to) {
		return answer, &refusal{codeNode, fmt.Sprintf("it is %s, not %s", answer.From, to)}
	}
	return answer, nil
}

// A server id is what raft knows a node by: the node's id and, behind the @,
// which folder it is. A node whose folder was lost comes back as another server,
// which has no votes of the old one to forget.
const incarnationMark = "@"

func serverID(node, incarnation string) string {
	if incarnation == "" { // a folder of a release before clusters
		return node
	}
	return node + incarnationMark + incarnation
}

// nodeOf returns the node id in a server id.
func nodeOf(server string) string {
	node, _, _ := strings.Cut(server, incarnationMark)
	return node
}
