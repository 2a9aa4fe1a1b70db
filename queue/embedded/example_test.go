package embedded_test

import (
	"fmt"
	"log"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/queue/embedded"
)

func ExampleStart() {
	server, err := embedded.Start(embedded.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Shutdown()
	nc, err := server.Connect()
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()

	if _, err := nc.Subscribe("greet", func(m *nats.Msg) {
		_ = m.Respond([]byte("hello, " + string(m.Data)))
	}); err != nil {
		log.Fatal(err)
	}
	answer, err := nc.Request("greet", []byte("world"), time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(answer.Data))
	// Output: hello, world
}
