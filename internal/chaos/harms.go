//go:build unix

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/wiretest"
)

func (n *nemesis) againstServers() []harm {
	w := n.w
	list := []harm{
		{"server killed", 3, time.Second, 8 * time.Second, n.killing(w.servers, 1), false},
		{"server frozen", 3, time.Second, 15 * time.Second, n.freezing(w.servers, 1), true},
		{"server stopped", 2, time.Second, 5 * time.Second, n.stopping(w.servers), false},
		{"two servers killed", 2, time.Second, 6 * time.Second, n.killing(w.servers, 2), false},
		{"two servers frozen", 1, time.Second, 10 * time.Second, n.freezing(w.servers, 2), true},
		{"all servers killed", 1, 0, 2 * time.Second, n.killing(w.servers, servers), false},
		{"servers rolled", 2, 0, 0, n.rolling, false},
		{"routes cut", 2, time.Second, 12 * time.Second, n.parting(wiretest.Cut), true},
		{"routes stalled", 2, time.Second, 12 * time.Second, n.parting(wiretest.Stalled), true},
		{"routes slow", 2, 2 * time.Second, 12 * time.Second, n.slowRoutes, true},
	}
	if w.disks {
		list = append(list,
			harm{"disk full", 2, 2 * time.Second, 8 * time.Second, n.filling, false})
	}
	return list
}

func (n *nemesis) againstProcesses(lease time.Duration) []harm {
	w := n.w
	return []harm{
		{"drainer killed", 4, 0, 4 * time.Second, n.killing(w.drainers, 1), false},
		{"two drainers killed", 1, 0, 4 * time.Second, n.killing(w.drainers, 2), false},
		{"drainer frozen", 4, lease / 10, lease * 3 / 2, n.freezing(w.drainers, 1), false},
		{"drainer stopped", 3, 0, 2 * time.Second, n.stopping(w.drainers), false},
		{"admitter killed", 2, 0, 3 * time.Second, n.killing(w.admitters, 1), false},
		{"admitter frozen", 1, time.Second, 8 * time.Second, n.freezing(w.admitters, 1), false},
		{"admitter stopped", 1, 0, 2 * time.Second, n.stopping(w.admitters), false},
		{"link cut", 2, time.Second, lease * 5 / 4, n.unplugging(wiretest.Cut, true), false},
		{"link stalled", 2, time.Second, lease * 5 / 4, n.unplugging(wiretest.Stalled, true),
			false},
		{"one link stalled", 1, time.Second, lease, n.unplugging(wiretest.Stalled, false), false},
		{"link slow", 2, 2 * time.Second, lease, n.slowLinks, false},
		{"target down", 1, time.Second, 4 * time.Second, n.mood(moodDown), false},
		{"target hangs", 1, time.Second, 4 * time.Second, n.mood(moodHangs), false},
	}
}

func names(of []*process) string {
	var all []string
	for _, p := range of {
		all = append(all, p.name)
	}
	return strings.Join(all, " ")
}

func (n *nemesis) killing(among []*process, many int) func(*rand.Rand) (string, func()) {
	return func(r *rand.Rand) (string, func()) {
		victims := some(r, among, many)
		for _, p := range victims {
			p.kill()
		}
		return names(victims), func() {
			for _, p := range victims {
				n.begin(p)
			}
		}
	}
}

func (n *nemesis) freezing(among []*process, many int) func(*rand.Rand) (string, func()) {
	return func(r *rand.Rand) (string, func()) {
		victims := some(r, among, many)
		for _, p := range victims {
			p.freeze()
		}
		return names(victims), func() {
			for _, p := range victims {
				p.thaw()
			}
		}
	}
}

func (n *nemesis) stopping(among []*process) func(*rand.Rand) (string, func()) {
	return func(r *rand.Rand) (string, func()) {
		p := some(r, among, 1)[0]
		n.stop(p)
		return p.name, func() { n.begin(p) }
	}
}

func (n *nemesis) stop(p *process) {
	if err := p.stop(); err != nil {
		n.w.say("%v", err)
	}
}

// rolling restarts servers one by one, as an upgrade does.
func (n *nemesis) rolling(r *rand.Rand) (string, func()) {
	order := some(r, n.w.servers, servers)
	for _, p := range order {
		n.stop(p)
		n.begin(p)
		if err := n.w.healthy(context.Background(), 30*time.Second); err != nil {
			n.w.say("rolled on: %v", err)
		}
	}
	return names(order), func() {}
}

// parting separates a server by a broken or silent network.
func (n *nemesis) parting(mode wiretest.Mode) func(*rand.Rand) (string, func()) {
	return func(r *rand.Rand) (string, func()) {
		i := r.IntN(servers)
		n.routesOf(i, func(l *wiretest.Link) { l.Become(mode) })
		return n.w.servers[i].name, func() {
			n.routesOf(i, func(l *wiretest.Link) { l.Become(wiretest.Open) })
		}
	}
}

func (n *nemesis) slowRoutes(r *rand.Rand) (string, func()) {
	i, delay := r.IntN(servers), time.Duration(20+r.IntN(400))*time.Millisecond
	n.routesOf(i, func(l *wiretest.Link) { l.Slow(delay) })
	return fmt.Sprintf("%s by %v", n.w.servers[i].name, delay), func() {
		n.routesOf(i, func(l *wiretest.Link) { l.Slow(0) })
	}
}

func (n *nemesis) routesOf(i int, do func(*wiretest.Link)) {
	for j := range servers {
		if i != j {
			do(n.w.routes[i][j])
			do(n.w.routes[j][i])
		}
	}
}

func (n *nemesis) unplugging(mode wiretest.Mode, all bool) func(*rand.Rand) (string, func()) {
	return func(r *rand.Rand) (string, func()) {
		p := n.anybody(r)
		wires, whom := n.w.wires[p.name], p.name
		if !all {
			i := r.IntN(servers)
			wires, whom = wires[i:i+1], fmt.Sprintf("%s to %s", p.name, n.w.servers[i].name)
		}
		for _, l := range wires {
			l.Become(mode)
		}
		return whom, func() {
			for _, l := range wires {
				l.Become(wiretest.Open)
			}
		}
	}
}

func (n *nemesis) slowLinks(r *rand.Rand) (string, func()) {
	p, delay := n.anybody(r), time.Duration(20+r.IntN(600))*time.Millisecond
	for _, l := range n.w.wires[p.name] {
		l.Slow(delay)
	}
	return fmt.Sprintf("%s by %v", p.name, delay), func() {
		for _, l := range n.w.wires[p.name] {
			l.Slow(0)
		}
	}
}

// anybody is a drainer in three of four cases.
func (n *nemesis) anybody(r *rand.Rand) *process {
	if r.IntN(4) > 0 {
		return some(r, n.w.drainers, 1)[0]
	}
	return some(r, n.w.admitters, 1)[0]
}

func (n *nemesis) mood(mood int32) func(*rand.Rand) (string, func()) {
	return func(*rand.Rand) (string, func()) {
		n.w.target.mood.Store(mood)
		return "target", func() { n.w.target.mood.Store(moodFlaky) }
	}
}

// filling fills a server's disk. JetStream there then stops until a restart.
func (n *nemesis) filling(r *rand.Rand) (string, func()) {
	i := r.IntN(servers)
	p := n.w.servers[i]
	name := filepath.Join(n.w.dir, p.name, "filler")
	if err := fill(name); err != nil {
		n.w.say("fill a disk: %v", err)
	}
	return p.name, func() {
		if err := os.Remove(name); err != nil {
			n.w.say("empty a disk: %v", err)
		}
		p.kill()
		n.begin(p)
	}
}

func fill(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	for page := make([]byte, 64<<10); ; {
		at, err := f.Write(page)
		if err != nil && at == 0 && len(page) > 1 {
			page = page[:len(page)/2]
			continue
		}
		if err != nil {
			return nil
		}
		if info, err := f.Stat(); err == nil && info.Size() > 2*diskSize {
			return fmt.Errorf("%s is larger than its disk", name)
		}
	}
}
