package walls

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mostPairs bounds, by package, the pairs of files in which the first refers to a declaration in
// the second (except for fields), and the number that point upwards in the best order of the files.
// A commit that raises a bound gives the reason.
var mostPairs = map[string]struct{ pairs, upward int }{
	"workers":                {98, 3},
	"workers/internal/core":  {52, 13},
	"workers/internal/valve": {235, 55},
}

func TestFilesReferToFewOtherFiles(t *testing.T) {
	for dir, most := range mostPairs {
		pairs := pairsOf(t, dir)
		if up := upward(pairs); len(pairs) > most.pairs || len(up) > most.upward {
			t.Errorf("%s: %d pairs of files, of which these point upwards: %v; want at most %+v",
				dir, len(pairs), up, most)
		}
	}
}

type pair struct{ from, to string }

func pairsOf(t *testing.T, dir string) map[pair]bool {
	list := exec.Command("go", "list", "-export", "-deps", "-f",
		"{{.ImportPath}}={{.Export}}={{if not .DepOnly}}{{range .GoFiles}}{{.}} {{end}}{{end}}",
		"./"+dir)
	list.Dir = "../.."
	text, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	export := map[string]string{}
	set := token.NewFileSet()
	var files []*ast.File
	for line := range strings.Lines(string(text)) {
		words := strings.Split(strings.TrimSpace(line), "=")
		export[words[0]] = words[1]
		for _, name := range strings.Fields(words[2]) {
			file, err := parser.ParseFile(set, filepath.Join("../..", dir, name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(export[path]) }
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(set, "gc", open)}
	own, err := config.Check(dir, set, files, &info)
	if err != nil {
		t.Fatal(err)
	}
	name := func(at token.Pos) string { return filepath.Base(set.Position(at).Filename) }
	pairs := map[pair]bool{}
	for word, used := range info.Uses {
		v, ok := used.(*types.Var)
		if used.Pkg() != own || ok && v.IsField() || name(word.Pos()) == name(used.Pos()) {
			continue
		}
		pairs[pair{name(word.Pos()), name(used.Pos())}] = true
	}
	return pairs
}

// upward returns the pairs that point upwards in the best order, found by a local search that moves
// one file at a time.
func upward(pairs map[pair]bool) (best []pair) {
	var files []string
	for p := range pairs {
		files = append(files, p.from, p.to)
	}
	slices.Sort(files)
	files = slices.Compact(files)
	order, number := make([]int, len(files)), map[string]int{}
	for i, file := range files {
		order[i], number[file] = i, i
	}
	points := make([]int, len(files)*len(files)) // 1 if the first file refers to the second
	for p := range pairs {
		points[number[p.from]*len(files)+number[p.to]] = 1
	}
	up := func() (up []pair) {
		for i, from := range order {
			for _, to := range order[:i] {
				if points[from*len(files)+to] == 1 {
					up = append(up, pair{files[from], files[to]})
				}
			}
		}
		return up
	}
	// gain returns the reduction of upward pairs if a moves from above b to below it.
	gain := func(a, b int) int { return points[b*len(files)+a] - points[a*len(files)+b] }
	best = up()
	draw := rand.New(rand.NewPCG(1, 1))
	for range 30 {
		draw.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for better := true; better; {
			better = false
			for i, file := range order {
				to, most := i, 0
				for j, sum := i+1, 0; j < len(order); j++ {
					if sum += gain(file, order[j]); sum > most {
						to, most = j, sum
					}
				}
				for j, sum := i-1, 0; j >= 0; j-- {
					if sum += gain(order[j], file); sum > most {
						to, most = j, sum
					}
				}
				if most > 0 {
					order = slices.Insert(slices.Delete(order, i, i+1), to, file)
					better = true
				}
			}
		}
		if now := up(); len(now) < len(best) {
			best = now
		}
	}
	return best
}
