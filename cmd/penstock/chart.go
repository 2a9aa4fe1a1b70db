package main

// inks are distinct with red-green colour blindness (Okabe and Ito, 2008).
var inks = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"}

const grey = "#b0b0b0"

func ink(i int) string { return inks[i%len(inks)] }

// chart is drawn by Chart.js in page.html.
type chart struct {
	Title, X, Y string
	Series      []series
}

// series is a dataset of Chart.js.
type series struct {
	Label   string  `json:"label"`
	Color   string  `json:"borderColor"`
	Fill    string  `json:"backgroundColor,omitempty"` // of points; empty: rings
	Line    bool    `json:"showLine"`
	Stepped bool    `json:"stepped"`
	Dash    []int   `json:"borderDash,omitempty"`
	Radius  float64 `json:"pointRadius"` // in pixels
	Points  []point `json:"data"`
}

type point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}
