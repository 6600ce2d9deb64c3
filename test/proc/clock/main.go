package main

import (
	"fmt"
	"os"
	"time"
)

func main() {
	start := time.Now()
	fmt.Fprintln(os.Stdout, start.Format(time.RFC3339Nano))
	<-time.After(400 * time.Millisecond)
	fmt.Fprintln(os.Stdout, time.Now().Format(time.RFC3339Nano))
	fmt.Fprintln(os.Stdout, time.Since(start))
}
