package client

import (
	"bufio"
	"bytes"
	"io"
)

// maxEventLine bounds a line of a stream, in bytes. An event has at most a few
// kilobytes.
const maxEventLine = 1 << 20

// block is what a stream of server-sent events has between two empty lines. One
// without an event name still has an id: where the stream has come to.
type block struct {
	id, event string
	data      []byte
}

// blocks reads a stream as its standard says, but for the byte order mark and
// lines that end in a carriage return alone, which no gateway sends.
type blocks struct {
	lines *bufio.Scanner
}

func newBlocks(r io.Reader) *blocks {
	b := &blocks{lines: bufio.NewScanner(r)}
	b.lines.Buffer(make([]byte, 0, 4<<10), maxEventLine)
	return b
}

// next returns the next block. What a stream has after its last empty line is no
// block: it broke off there. The error is io.EOF at the end.
func (b *blocks) next() (block, error) {
	var got block
	hasData := false
	for b.lines.Scan() {
		name, value, _ := bytes.Cut(b.lines.Bytes(), []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "":
			if len(b.lines.Bytes()) == 0 {
				return got, nil
			}
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				got.id = string(value)
			}
		case "event":
			got.event = string(value)
		case "data":
			if hasData {
				got.data = append(got.data, '\n')
			}
			hasData = true
			got.data = append(got.data, value...)
		}
	}
	if err := b.lines.Err(); err != nil {
		return block{}, err
	}
	return block{}, io.EOF
}
