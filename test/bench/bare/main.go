package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/gin-gonic/gin"
)

type target struct {
	Type string `json:"type" binding:"required"`
	ID   string `json:"id" binding:"required"`
}

type key struct {
	Tenant    string `json:"tenant" binding:"required"`
	Program   string `json:"program"`
	Target    target `json:"target"`
	Actor     string `json:"actor" binding:"required"`
	Workflow  string `json:"workflow"`
	Operation string `json:"operation"`
}

type acquireBody struct {
	Key           key               `json:"key"`
	Instance      string            `json:"instance" binding:"required"`
	TTLMS         *int64            `json:"ttl_ms"`
	MaxLifetimeMS *int64            `json:"max_lifetime_ms"`
	WaitMS        int64             `json:"wait_ms"`
	ExecutionID   string            `json:"execution_id"`
	JobID         string            `json:"job_id"`
	TraceID       string            `json:"trace_id"`
	Metadata      map[string]string `json:"metadata"`
}

type releaseBody struct {
	Token    uint64 `json:"token" binding:"required"`
	Instance string `json:"instance" binding:"required"`
}

type lease struct {
	RecordVersion int               `json:"record_version"`
	Namespace     string            `json:"namespace"`
	Key           key               `json:"key"`
	KeyID         string            `json:"key_id"`
	LeaseID       string            `json:"lease_id"`
	Owner         string            `json:"owner"`
	Instance      string            `json:"instance"`
	Token         uint64            `json:"token"`
	State         string            `json:"state"`
	AcquiredAt    time.Time         `json:"acquired_at"`
	RenewedAt     time.Time         `json:"renewed_at"`
	ExpiresAt     time.Time         `json:"expires_at"`
	ExpiresInMS   int64             `json:"expires_in_ms"`
	TTLMS         int64             `json:"ttl_ms"`
	MaxLifetimeMS int64             `json:"max_lifetime_ms"`
	Renewals      uint64            `json:"renewals"`
	ExecutionID   string            `json:"execution_id"`
	JobID         string            `json:"job_id"`
	TraceID       string            `json:"trace_id"`
	Metadata      map[string]string `json:"metadata"`
	EndedAt       *time.Time        `json:"ended_at"`
	EndedBy       string            `json:"ended_by"`
	Reason        string            `json:"reason"`
}

type reply struct {
	Outcome string `json:"outcome"`
	Lease   lease  `json:"lease"`
}

const leaseID = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run serves on a free port and prints its address.
func run() error {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.POST("/v1/namespaces/:ns/leases", func(c *gin.Context) {
		var body acquireBody
		if err := c.ShouldBindJSON(&body); err != nil {
			c.String(http.StatusBadRequest, err.Error())
			return
		}
		c.JSON(http.StatusCreated, reply{Outcome: "acquired", Lease: leaseOf(c.Param("ns"), &body)})
	})
	r.POST("/v1/namespaces/:ns/leases/:lease_id/release", func(c *gin.Context) {
		var body releaseBody
		if err := c.ShouldBindJSON(&body); err != nil {
			c.String(http.StatusBadRequest, err.Error())
			return
		}
		l := leaseOf(c.Param("ns"), &acquireBody{Instance: body.Instance})
		l.State, l.EndedAt = "released", &l.RenewedAt
		c.JSON(http.StatusOK, reply{Outcome: "released", Lease: l})
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return http.Serve(l, r)
}

func leaseOf(ns string, b *acquireBody) lease {
	now := time.Now().UTC()
	return lease{
		RecordVersion: 1, Namespace: ns, Key: b.Key, KeyID: leaseID[:22], LeaseID: leaseID, Owner: "anonymous",
		Instance: b.Instance, Token: 42, State: "active", AcquiredAt: now, RenewedAt: now,
		ExpiresAt: now.Add(30 * time.Second), ExpiresInMS: 30000, TTLMS: 30000, MaxLifetimeMS: 86400000,
		JobID: b.JobID, ExecutionID: b.ExecutionID, Metadata: b.Metadata,
	}
}
