package main

func Example() {
	main()
	// Output:
	// {"stream":"PENSTOCK_mail","seq":1}
	// {"stream":"PENSTOCK_mail","seq":2}
	// {"stream":"PENSTOCK_mail","seq":3}
	// {"error":{"code":503,"err_code":10077,"description":"maximum messages per subject exceeded"},"stream":"PENSTOCK_mail","seq":0}
	// mail:1: letter 1
	// mail:2: letter 2
	// mail:3: letter 3
}
