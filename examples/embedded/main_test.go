package main

func Example() {
	main()
	// Output:
	// queued mail:1 0s
	// queued mail:2 0s
	// queued mail:3 0s
	// rejected  100ms
	// mail:1: letter 1
	// mail:2: letter 2
	// mail:3: letter 3
}
