package paper

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
)

var (
	path    = regexp.MustCompile(`^<path d="(.*)" style="(.*)" />$`)
	dot     = regexp.MustCompile(`^M([\d.]+),([\d.]+)A([\d.]+),[\d.]+ 0 1 1 .*Z$`)
	decimal = regexp.MustCompile(`\d+\.\d\d+`)
	usual   = []byte("font-variant:normal;font-weight:normal;font-style:normal;")
)

// compact shrinks an SVG of vgsvg: neighbors of one style become a path, dots round ends of empty
// lines, and coordinates have one decimal.
func compact(svg []byte) []byte {
	var to bytes.Buffer
	var style []byte
	end := func() {
		if style != nil {
			fmt.Fprintf(&to, `" style="%s" />`+"\n", style)
			style = nil
		}
	}
	for line := range bytes.Lines(bytes.ReplaceAll(svg, usual, nil)) {
		found := path.FindSubmatch(bytes.TrimSuffix(line, []byte("\n")))
		if found == nil {
			end()
			to.Write(line)
			continue
		}
		d, as := found[1], found[2]
		if c := dot.FindSubmatch(d); c != nil {
			radius, _ := strconv.ParseFloat(string(c[3]), 64)
			right, _ := strconv.ParseFloat(string(c[1]), 64)
			d = fmt.Appendf(nil, "M%g,%sh0", right-radius, c[2])
			as = fmt.Appendf(nil, "stroke-linecap:round;stroke-width:%g;stroke:%s", 2*radius,
				bytes.TrimPrefix(as, []byte("fill:")))
		}
		if !bytes.Equal(as, style) {
			end()
			to.WriteString(`<path d="`)
			style = as
		}
		to.Write(decimal.ReplaceAllFunc(d, func(n []byte) []byte {
			x, _ := strconv.ParseFloat(string(n), 64)
			return strconv.AppendFloat(nil, x, 'f', 1, 64)
		}))
	}
	end()
	return to.Bytes()
}
