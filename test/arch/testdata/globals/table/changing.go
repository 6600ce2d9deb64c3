package table

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"leased/errs"
)

type counters struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counters) add() {}

type tree struct{ left *tree }

// What they are.
var (
	mu       sync.Mutex                             // want "mu is a sync.Mutex, which exists to change: a second server in this process would share it; put it into a struct that is passed on"
	started  atomic.Bool                            // want "started is a sync/atomic.Bool, which exists to change: a second server in this process would share it; put it into a struct that is passed on"
	inside   counters                               // want "inside is a sync.Mutex, which exists to change: a second server in this process would share it; put it into a struct that is passed on"
	locks    [4]sync.Mutex                          // want "locks is a sync.Mutex, which exists to change: a second server in this process would share it; put it into a struct that is passed on"
	single                 = &counters{}            // want "single is a pointer, whose target can change: a second server in this process would share it; put it into a struct that is passed on"
	pointers               = map[string]*counters{} // want "pointers is a pointer, whose target can change: a second server in this process would share it; put it into a struct that is passed on"
	queue                  = make(chan int)         // want "queue is a channel: a second server in this process would share it; put it into a struct that is passed on"
	output   io.Writer     = os.Stdout              // want "output is an interface value, which can hide anything: a second server in this process would share it; put it into a struct that is passed on"
)

// What is done with them.
var (
	count   int
	cache   = map[string]int{}
	sizes   = []int{3, 1, 2}
	grid    = [2][2]int{}
	current struct{ name string }
	forest  = [1]tree{}
	buffer  bytes.Buffer
	factory = func() int { return 1 }
)

func write(x int) (any, int) {
	count = x                // want "count is assigned to: it is a package-level variable, shared by all that runs in this process"
	count += x               // want "count is assigned to: it is a package-level variable, shared by all that runs in this process"
	count++                  // want "count is assigned to: it is a package-level variable, shared by all that runs in this process"
	factory = nil            // want "factory is assigned to: it is a package-level variable, shared by all that runs in this process"
	cache["a"] = x           // want "cache is assigned to: it is a package-level variable, shared by all that runs in this process"
	(grid[0])[1] = x         // want "grid is assigned to: it is a package-level variable, shared by all that runs in this process"
	current.name = "x"       // want "current is assigned to: it is a package-level variable, shared by all that runs in this process"
	forest[0].left = nil     // want "forest is assigned to: it is a package-level variable, shared by all that runs in this process"
	*forest[0].left = tree{} // want "forest is assigned to: it is a package-level variable, shared by all that runs in this process"
	for count = range 3 {    // want "count is assigned to: it is a package-level variable, shared by all that runs in this process"
	}
	for _, cache["b"] = range sizes { // want "cache is assigned to: it is a package-level variable, shared by all that runs in this process"
	}
	delete(cache, "a")                            // want "cache is changed by delete: it is a package-level variable, shared by all that runs in this process"
	clear(sizes)                                  // want "sizes is changed by clear: it is a package-level variable, shared by all that runs in this process"
	copy(sizes[1:], sizes)                        // want "sizes is changed by copy: it is a package-level variable, shared by all that runs in this process"
	close(queue)                                  // want "queue is changed by close: it is a package-level variable, shared by all that runs in this process"
	queue <- 1                                    // want "queue is sent to: it is a package-level variable, shared by all that runs in this process"
	_ = append(sizes[:1], x)                      // want "sizes is changed by append: it is a package-level variable, shared by all that runs in this process"
	slices.Sort(sizes)                            // want "sizes is changed by slices.Sort: it is a package-level variable, shared by all that runs in this process"
	slices.Reverse[[]int](sizes)                  // want "sizes is changed by slices.Reverse: it is a package-level variable, shared by all that runs in this process"
	sort.Ints(sizes)                              // want "sizes is changed by sort.Ints: it is a package-level variable, shared by all that runs in this process"
	maps.Copy(cache, errs.Names)                  // want "cache is changed by maps.Copy: it is a package-level variable, shared by all that runs in this process"
	p := &count                                   // want "count has its address taken: it is a package-level variable, shared by all that runs in this process"
	q := &grid[1]                                 // want "grid has its address taken: it is a package-level variable, shared by all that runs in this process"
	r := grid[1][:]                               // want "grid has its address taken: it is a package-level variable, shared by all that runs in this process"
	buffer.WriteString("x")                       // want "buffer has its address taken by method WriteString: it is a package-level variable, shared by all that runs in this process"
	add := inside.add                             // want "inside has its address taken by method add: it is a package-level variable, shared by all that runs in this process"
	alias := cache                                // want "cache is handed out by reference: clone it, or look up here what is wanted"
	tail := sizes[1:]                             // want "sizes is handed out by reference: clone it, or look up here what is wanted"
	kept := struct{ m map[string]int }{cache}     // want "cache is handed out by reference: clone it, or look up here what is wanted"
	named := struct{ m map[string]int }{m: cache} // want "cache is handed out by reference: clone it, or look up here what is wanted"
	_, _, _, _, _, _, _, _ = p, q, r, add, alias, tail, kept, named
	return cache, x // want "cache is handed out by reference: clone it, or look up here what is wanted"
}

func elsewhere() map[string]int {
	errs.ErrGone = nil          // want "errs.ErrGone is assigned to: it is a package-level variable, shared by all that runs in this process"
	errs.Names["a"] = 1         // want "errs.Names is assigned to: it is a package-level variable, shared by all that runs in this process"
	http.DefaultTransport = nil // want "http.DefaultTransport is assigned to: it is a package-level variable, shared by all that runs in this process"
	return errs.Names           // want "errs.Names is handed out by reference: clone it, or look up here what is wanted"
}
