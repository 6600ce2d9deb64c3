package errs

import "errors"

// ErrGone may be exported: callers compare with it.
var ErrGone = errors.New("gone")

type codeError int

func (codeError) Error() string { return "code" }

var ErrCode error = codeError(1)

var Default = 7 // want "Default is exported, so that any importer can change it: make it a function that returns a new value"

var Names = map[string]int{} // want "Names is exported, so that any importer can change it: make it a function that returns a new value"
