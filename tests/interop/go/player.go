// Plays cells of the compatibility matrix with Apache's client for Go, as the players in Java and
// Python do, and prints what it saw in each.
//
// Arguments: namesrvAddr brokerAddr prefix cell... For each cell it prints one line of JSON with
// "facts" or "failure". A topic is named prefix_cell and exists already, but for that of "sync".
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type cell func(stage *stage) facts

var cells = map[string]cell{
	"sync":            playSync,
	"async":           playAsync,
	"one-way":         playOneWay,
	"batch":           playBatch,
	"selector":        playSelector,
	"transaction":     playTransaction,
	"request":         playRequest,
	"push-concurrent": playPushConcurrent,
	"push-ordered":    playPushOrdered,
	"broadcast":       playBroadcast,
	"tags":            playTags,
	"sql":             playSQL,
	"retry-success":   playRetrySuccess,
	"dead-letter":     playDeadLetter,
	"delay-level":     playDelayLevel,
	"lite-pull":       playPull,
	"from-first":      playFromFirst,
	"from-last":       playFromLast,
}

var printing sync.Mutex

func main() {
	rlog.SetLogLevel("fatal")
	if path := os.Getenv("PLAYER_LOG"); path != "" {
		rlog.SetLogLevel("warn")
		must(rlog.SetOutputPath(path))
	}
	clients := newClients(os.Args[1], os.Args[3])
	var playing sync.WaitGroup
	for _, name := range os.Args[4:] {
		playing.Add(1)
		go func() {
			defer playing.Done()
			play(name, clients)
		}()
	}
	playing.Wait()
	os.Exit(0)
}

func play(name string, clients *clients) {
	begin := time.Now()
	line := facts{"cell": name}
	defer func() {
		if failure := recover(); failure != nil {
			line["failure"] = fmt.Sprintf("%v\n%s", failure, debug.Stack())
		}
		line["seconds"] = time.Since(begin).Seconds()
		tell(name, line)
	}()
	stage := newStage(clients, name)
	defer stage.close()
	line["facts"] = cells[name](stage)
}

// The name of the cell comes first in the line, by which its reader finds it.
func tell(name string, line facts) {
	delete(line, "cell")
	rest, err := json.Marshal(line)
	must(err)
	printing.Lock()
	defer printing.Unlock()
	fmt.Printf("{\"cell\":%q,%s\n", name, rest[1:])
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func required[T any](value T, err error) T {
	must(err)
	return value
}
