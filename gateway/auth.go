package gateway

import (
	"net/http"

	"leased/contract"
)

// Principal is who a request comes from. Its name is the owner of every lease
// it acquires; no field of a request can change that.
type Principal struct {
	Name string
	// Scoped tells that the principal's rights depend on a key's tenant or
	// actor. A request that names a lease or a key only by its id then costs a
	// look-up before it is authorised; other principals are spared it.
	Scoped bool
}

// Verb is a right.
type Verb string

// The verbs. VerbAcquire covers renewing and releasing one's own leases, and
// resolve.
const (
	VerbAcquire Verb = "acquire"
	VerbInspect Verb = "inspect"
	VerbList    Verb = "list"
	VerbHistory Verb = "history"
	VerbCheck   Verb = "check"
	VerbWatch   Verb = "watch"
	VerbRevoke  Verb = "revoke"
	VerbAdmin   Verb = "admin" // what is done to the whole server; its Action has no namespace
)

// Action is what a principal wants to do, and to what. An empty Tenant or Actor
// means any of them.
type Action struct {
	Verb      Verb
	Namespace string
	Tenant    string
	Actor     string
	// Some asks whether the principal may do it to any tenant and actor at all,
	// rather than to all of them: a stream then shows the events of those keys
	// alone, and a renewal or release is of a lease that is the principal's own,
	// which the store compares. Tenant and Actor are empty.
	Some bool
}

// Authenticator decides who may do what. Both methods are called on every
// request, concurrently, and must not block on anything but memory; an
// Authenticator that fetches keys does so beside the requests.
type Authenticator interface {
	// Authenticate tells who sent r. An error is answered as unauthenticated
	// and its text is not shown; an *contract.Error keeps its code, for an
	// authenticator that cannot decide now.
	Authenticate(r *http.Request) (Principal, error)
	// Authorize reports whether p may do a now. It is asked again when a wait
	// has ended in a grant: rights that ended meanwhile must answer false.
	Authorize(p Principal, a Action) bool
}

// AuthNone returns the authenticator of auth.mode none: everybody is the
// principal "anonymous", who has every right.
func AuthNone() Authenticator { return authNone{} }

type authNone struct{}

func (authNone) Authenticate(*http.Request) (Principal, error) {
	return Principal{Name: "anonymous"}, nil
}

func (authNone) Authorize(Principal, Action) bool { return true }

// onKey returns the action of verb on one key.
func onKey(verb Verb, namespace string, k *contract.Key) Action {
	return Action{Verb: verb, Namespace: namespace, Tenant: k.Tenant, Actor: k.Actor}
}

// own returns the action of renewing or releasing one's own lease. Its key is not
// known before the store is asked, and the right to acquire it was had at the grant.
func own(namespace string) Action {
	return Action{Verb: VerbAcquire, Namespace: namespace, Some: true}
}
