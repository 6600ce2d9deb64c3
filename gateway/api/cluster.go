package api

// Cluster answers GET /v1/cluster: what the node that was asked knows of the
// cluster.
type Cluster struct {
	ClusterID string `json:"cluster_id"`
	Term      uint64 `json:"term"`
	// Leader is the id of the node that leads; empty when none is known to.
	Leader string `json:"leader"`
	// AppliedIndex is that of the node that was asked.
	AppliedIndex uint64        `json:"applied_index"`
	Nodes        []ClusterNode `json:"nodes"`
}

// The roles of a node; empty when it cannot be asked.
const (
	RoleLeader    = "leader"
	RoleFollower  = "follower"
	RoleCandidate = "candidate"
)

// ClusterNode is one member. What it alone knows is zero when it cannot be asked.
type ClusterNode struct {
	ID           string `json:"id"`
	Address      string `json:"address"`
	Role         string `json:"role"`
	Voter        bool   `json:"voter"`
	AppliedIndex uint64 `json:"applied_index"`
	// LastContactMS is how long ago the leader and the node heard of each other.
	LastContactMS int64 `json:"last_contact_ms"`
	Healthy       bool  `json:"healthy"`
	// SnapshotIndex and SnapshotAgeMS are of the node's newest snapshot; an index of
	// 0 says that there is none.
	SnapshotIndex uint64 `json:"snapshot_index"`
	SnapshotAgeMS int64  `json:"snapshot_age_ms"`
	LogBytes      int64  `json:"log_bytes"`
	// LogError is why the node's log could not be written when that was last tried,
	// such as a full disk; empty when it could.
	LogError string `json:"log_error"`
}

// AddMemberRequest is the body of POST /v1/cluster/members.
type AddMemberRequest struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	// NonVoter: the node gets the log and does not count for a majority.
	NonVoter bool `json:"non_voter,omitzero"`
}

// TransferRequest is the body of POST /v1/cluster/transfer.
type TransferRequest struct {
	// To is the node that is to lead; empty lets the leader choose.
	To string `json:"to,omitzero"`
}

// The outcomes of what is done to a cluster.
const (
	OutcomeAdded       = "added"
	OutcomeRemoved     = "removed"
	OutcomeTransferred = "transferred"
	OutcomeRestored    = "restored"
)

// ClusterReply answers what changed the cluster.
type ClusterReply struct {
	Outcome string `json:"outcome"`
}

// RestoreReply answers POST /v1/cluster/restore.
type RestoreReply struct {
	Outcome string `json:"outcome"`
	// ClusterID, Index and BackupTime are those of the backup.
	ClusterID  string `json:"cluster_id"`
	Index      uint64 `json:"index"`
	BackupTime Time   `json:"backup_time"`
	// EndedLeases were active in the backup.
	EndedLeases int64 `json:"ended_leases"`
	// Floor is what every token from now on is higher than.
	Floor uint64 `json:"floor"`
}

// BackupMediaType is the type of a backup.
const BackupMediaType = "application/octet-stream"
