package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const many = 12

// The topic is not there before the first send; one body is long enough to be compressed.
func playSync(stage *stage) facts {
	sent := []facts{}
	for n := 0; n < many; n++ {
		body := fmt.Sprintf("message %d Grüße", n)
		if n == 3 {
			body += strings.Repeat(" and so on", 1_000)
		}
		message := stage.message(body)
		message.WithTag(fmt.Sprintf("tag%d", n))
		message.WithKeys([]string{fmt.Sprintf("key%d", n), "all"})
		message.WithProperty("number", fmt.Sprint(n))
		message.WithProperty("sign", "ü € 😀")
		sent = append(sent, factsOfResult(stage.send(message)))
	}
	return facts{"sent": sent, "stored": stage.stored(stage.topic, many)}
}

func playAsync(stage *stage) facts {
	sent, failures := []facts{}, []string{}
	var lock sync.Mutex
	var missing sync.WaitGroup
	for n := 0; n < many; n++ {
		missing.Add(1)
		must(stage.producer.SendAsync(context.Background(),
			func(_ context.Context, result *primitive.SendResult, err error) {
				lock.Lock()
				defer lock.Unlock()
				defer missing.Done()
				if err != nil {
					failures = append(failures, err.Error())
				} else {
					sent = append(sent, factsOfResult(result))
				}
			}, stage.message(fmt.Sprintf("message %d", n))))
	}
	missing.Wait()
	return facts{"sent": sent, "failures": failures, "stored": stage.stored(stage.topic, many)}
}

func playOneWay(stage *stage) facts {
	for n := 0; n < many; n++ {
		message := stage.message(fmt.Sprintf("message %d", n))
		must(stage.producer.SendOneWay(context.Background(), message))
	}
	return facts{"stored": stage.stored(stage.topic, many)}
}

func playBatch(stage *stage) facts {
	messages := []*primitive.Message{}
	for n := 0; n < many; n++ {
		message := stage.message(fmt.Sprintf("message %d", n))
		messages = append(messages, message.WithTag(fmt.Sprintf("tag%d", n)))
	}
	result := required(stage.producer.SendSync(context.Background(), messages...))
	queues := []*primitive.MessageQueue{result.MessageQueue}
	return facts{"sent": factsOfResult(result), "stored": stage.storedIn(stage.topic, queues, many)}
}

func playSelector(stage *stage) facts {
	queues := stage.queues(stage.topic)
	sent := []facts{}
	for n := 0; n < many; n++ {
		message := stage.message(fmt.Sprintf("message %d", n))
		message.Queue = queues[n%len(queues)]
		sent = append(sent, factsOfResult(stage.send(message)))
	}
	return facts{"sent": sent, "stored": stage.stored(stage.topic, many)}
}
