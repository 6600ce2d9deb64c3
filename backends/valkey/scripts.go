package valkey

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/valkey-io/valkey-go"
)

//go:embed scripts/*.lua
var sources embed.FS

// scripts are the verbs as the server runs them.
type scripts struct {
	acquire, renew, release, revoke, leave, undo *script
	confirm, tidy                                *script
	get, getKey, check, history, list, listEnded *script
	floor, watch, health, tick, rights           *script
}

type script struct {
	name string
	lua  *valkey.Lua
	// reads tells that its answer changes nothing that anybody asked for.
	reads bool
}

// oomSafe lets a script run although the server is out of memory: it frees, or
// it is what keeps holders alive. A script without it is refused before it
// starts, and never stopped half way.
const oomSafe = "flags=allow-oom"

func newScripts() (*scripts, error) {
	var s scripts
	plain := []string{"base", "record", "grant", "queue"}
	ending := append(slices.Clone(plain), "ending")
	for _, d := range [...]struct {
		to    **script
		name  string
		flags string
		parts []string
		reads bool
	}{
		{&s.acquire, "acquire", "", plain, false},
		{&s.renew, "renew", oomSafe, plain, false},
		{&s.release, "release", oomSafe, ending, false},
		{&s.revoke, "revoke", oomSafe, ending, false},
		{&s.leave, "leave", oomSafe, plain, false},
		{&s.tidy, "tidy", oomSafe, plain, false},
		{&s.undo, "undo", oomSafe, plain, false},
		{&s.confirm, "confirm", oomSafe, plain, false},
		{&s.get, "get", oomSafe, plain, true},
		{&s.getKey, "getkey", oomSafe, plain, true},
		{&s.check, "check", oomSafe, plain, true},
		{&s.history, "history", oomSafe, plain, true},
		{&s.list, "list", oomSafe, plain, true},
		{&s.listEnded, "listended", oomSafe, plain, true},
		{&s.floor, "floor", oomSafe, plain, false},
		{&s.watch, "watch", oomSafe, plain, true},
		{&s.health, "health", "", []string{"base"}, true},
		{&s.tick, "tick", oomSafe, plain, true},
		{&s.rights, "rights", oomSafe, nil, true},
	} {
		var b strings.Builder
		b.WriteString(strings.TrimSpace("#!lua "+d.flags) + "\n")
		for _, part := range append(slices.Clip(d.parts), d.name) {
			text, err := sources.ReadFile("scripts/" + part + ".lua")
			if err != nil {
				return nil, fmt.Errorf("valkey: %w", err)
			}
			b.Write(text)
		}
		*d.to = &script{name: d.name, lua: valkey.NewLuaScript(b.String()), reads: d.reads}
	}
	return &s, nil
}
