package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"leased/gateway/api"
)

// Defaults of Options.
const (
	DefaultTimeout        = 10 * time.Second
	DefaultAttemptTimeout = 5 * time.Second
	DefaultNamespace      = "default"
)

// Options configure a Client.
type Options struct {
	// Servers are the base URLs of the gateways, such as
	// "http://127.0.0.1:8470"; at least one. Calls go to the first one that
	// serves and move on when it does not.
	Servers []string
	// Namespace is that of requests which name none; empty means "default".
	Namespace string
	// Token is sent as a bearer token; empty sends none.
	Token string
	// Timeout bounds a call whose context has no deadline, retries included and
	// the wait of an acquire excluded; 0 means DefaultTimeout.
	Timeout time.Duration
	// AttemptTimeout bounds one try, the wait of an acquire excluded, so that a
	// server which swallows requests leaves time for another; 0 means
	// DefaultAttemptTimeout.
	AttemptTimeout time.Duration
	// RetryFor bounds how long after its first failure a call is tried again
	// that certainly was not applied; 0 means until the context ends, a negative
	// value means never. A call that may have been applied, or whose wait a server
	// had begun, is tried until the context ends, and so is the release of a session.
	RetryFor time.Duration
	// HTTPClient makes the requests; nil makes one with a connection pool of its
	// own, which speaks HTTP/1.1 and leaves a machine that is silent for 20 seconds.
	// Another one has to find that out too (net.Dialer.KeepAliveConfig), or a server
	// that dies during a wait is waited for to the end. One that speaks HTTP/2 must find
	// dead connections sooner than leases end (http.HTTP2Config.SendPingTimeout), since
	// all calls share one. It must not have a Timeout, and its CheckRedirect is not used: the
	// gateway never redirects, and no token follows whoever does.
	HTTPClient *http.Client
}

// Client calls the gateway. It may be used concurrently.
type Client struct {
	servers        []string
	namespace      string
	token          string
	timeout        time.Duration
	attemptTimeout time.Duration
	retryFor       time.Duration
	http           *http.Client
	// server is the index of the server that the next attempt goes to.
	server atomic.Uint32
	keeper keeper
	now    func() time.Time // time.Now, or a test's
	// spread makes the intervals between renewals a little shorter, by another
	// amount in each process: those that were started together would renew
	// together for ever.
	spread float64
}

// New returns a client. It connects to nothing. The error names the option that
// cannot be used.
func New(o Options) (*Client, error) {
	c := &Client{
		namespace: orDefault(o.Namespace, DefaultNamespace), token: o.Token,
		timeout:        orDefault(o.Timeout, DefaultTimeout),
		attemptTimeout: orDefault(o.AttemptTimeout, DefaultAttemptTimeout),
		retryFor:       o.RetryFor, http: o.HTTPClient, now: time.Now,
		spread: 0.9 + 0.1*rand.Float64(), //nolint:gosec // no secret
	}
	if len(o.Servers) == 0 {
		return nil, fmt.Errorf("client: no server is given")
	}
	for _, s := range o.Servers {
		base, err := baseURL(s)
		if err != nil {
			return nil, err
		}
		c.servers = append(c.servers, base)
	}
	if c.timeout < 0 || c.attemptTimeout < 0 {
		return nil, fmt.Errorf("client: a timeout is negative")
	}
	for i := range len(c.token) {
		if c.token[i] <= ' ' || c.token[i] > '~' {
			return nil, fmt.Errorf("client: the token has a character that cannot stand in a header")
		}
	}
	switch {
	case o.HTTPClient == nil:
		c.http = newHTTPClient(http.DefaultTransport)
	case o.HTTPClient.Timeout != 0:
		return nil, fmt.Errorf("client: the HTTPClient has a Timeout, which would cut the waits of acquires; use Options.Timeout")
	default:
		own := *o.HTTPClient
		c.http = &own
	}
	c.http.CheckRedirect = refuseRedirect
	return c, nil
}

// Close closes the connections that are idle. Calls still work afterwards, and
// sessions go on: Shutdown ends those.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// newHTTPClient returns a client whose pool is large enough for a program that
// renews many leases at once: the default of two idle connections a host makes
// the others be dialled again for each call.
//
// It speaks HTTP/1.1: there an attempt whose time is over closes its connection,
// and the next one dials. Over HTTP/2 all of them would share one that the network
// has forgotten, until the leases were lost.
func newHTTPClient(base http.RoundTripper) *http.Client {
	t, ok := base.(*http.Transport)
	if ok {
		t = t.Clone()
	} else {
		// The program has wrapped the default one, for traces say. What is in it cannot
		// be seen.
		t = &http.Transport{
			Proxy: http.ProxyFromEnvironment, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
		}
	}
	dial := t.DialContext
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second}).DialContext
	}
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if tcp, ok := conn.(*net.TCPConn); ok {
			endOnSilence(tcp)
		}
		return conn, err
	}
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	if t.TLSClientConfig != nil {
		// Once the default transport was used, it offers HTTP/2 in here.
		t.TLSClientConfig.NextProtos = nil
	}
	t.MaxIdleConns = 0
	t.MaxIdleConnsPerHost = 128
	return &http.Client{Transport: t}
}

// silence is how long the other machine may not answer before a connection to it is
// given up. The wait of an acquire says nothing for minutes, and nobody can tell
// otherwise that the server has lost its power meanwhile, or the network the
// connection. It is three of the times after which the machine is asked.
const silence = 3 * probeAfter

const probeAfter = 5 * time.Second

// endOnSilence makes the connection end when the other machine does not answer. One
// for which that cannot be set works all the same.
func endOnSilence(conn *net.TCPConn) {
	_ = conn.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: probeAfter, Interval: probeAfter, Count: int(silence / probeAfter)})
	boundUnanswered(conn, silence+probeAfter)
}

func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func baseURL(s string) (string, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return "", fmt.Errorf("client: server %q: not a URL", s)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return "", fmt.Errorf("client: server %q: not a URL such as http://127.0.0.1:8470", s)
	case u.User != nil:
		return "", fmt.Errorf("client: the server's URL holds a password; give the token instead")
	case u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("client: server %q: has a query or a fragment", s)
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// Ready asks one server whether it can serve every namespace, and does not ask
// again. When it cannot, the readiness is returned beside the error if the
// server gave one.
func (c *Client) Ready(ctx context.Context) (*api.Readiness, error) {
	var got api.Readiness
	err := c.do(ctx, &call{method: http.MethodGet, path: "/readyz", once: true, selfBound: true, read: into(&got, nil), refused: into(&got, nil)})
	if err != nil && got.Namespaces == nil {
		return nil, err
	}
	return &got, err
}

// Namespaces returns every namespace, in the order of their names.
func (c *Client) Namespaces(ctx context.Context) ([]api.Namespace, error) {
	var got api.NamespacesReply
	err := c.do(ctx, &call{method: http.MethodGet, path: "/v1/namespaces", selfBound: true, read: into(&got, nil)})
	return got.Namespaces, err
}

// Namespace returns what a namespace is, promises and does; "" is the client's
// own.
func (c *Client) Namespace(ctx context.Context, name string) (*api.Namespace, error) {
	got := new(api.Namespace)
	if err := c.do(ctx, &call{method: http.MethodGet, path: c.in(name), selfBound: true, read: into(got, nil)}); err != nil {
		return nil, err
	}
	return got, nil
}

// in returns the path of a namespace.
func (c *Client) in(namespace string) string {
	return "/v1/namespaces/" + url.PathEscape(orDefault(namespace, c.namespace))
}

func read[T any](ctx context.Context, c *Client, path string, query url.Values, check func(*T) bool) (*T, error) {
	got := new(T)
	if err := c.do(ctx, &call{method: http.MethodGet, path: path, query: query, read: into(got, check)}); err != nil {
		return nil, err
	}
	return got, nil
}
