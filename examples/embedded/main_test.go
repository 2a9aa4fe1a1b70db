package main

func Example() {
	main()
	// Output:
	// queued mail:1
	// queued mail:2
	// queued mail:3
	// the queue is full for 100ms
	// mail:1: letter 1
	// mail:2: letter 2
	// mail:3: letter 3
}
