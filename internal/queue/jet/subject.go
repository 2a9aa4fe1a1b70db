package jet

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/penstock-mq/penstock/internal/server/installation"
	"github.com/penstock-mq/penstock/queue"
)

// DefaultPrefix begins the names of an installation that chose none.
const DefaultPrefix = installation.DefaultPrefix

// Names builds the names of an installation's subjects, streams and KV buckets.
type Names struct {
	lower, upper string
}

// NewNames takes a prefix of 1 to 32 of a-z, 0-9, "-" and "_" that begins with a letter or digit;
// empty: [DefaultPrefix].
func NewNames(prefix string) (Names, error) {
	prefix = cmp.Or(prefix, DefaultPrefix)
	if err := installation.CheckPrefix(prefix); err != nil {
		return Names{}, fmt.Errorf("prefix %w", err)
	}
	return Names{lower: prefix, upper: strings.ToUpper(prefix)}, nil
}

// Prefix begins all subjects.
func (n Names) Prefix() string { return n.lower }

// Jobs is the subject of clients' jobs for a queue policy.
func (n Names) Jobs(policy string, k queue.Key) string {
	return n.lower + ".jobs." + policy + "." + string(k)
}

// Admitted is the subject of admitted jobs of a door policy.
func (n Names) Admitted(policy string, k queue.Key) string {
	return n.lower + ".admitted." + policy + "." + string(k)
}

// Queue is the subject under which a job is stored.
func (n Names) Queue(policy string, partition int, k queue.Key) string {
	return n.lower + ".queue." + policy + "." + strconv.Itoa(partition) + "." + string(k)
}

// ParseQueue returns the partition and key of a stored job. If the tail is no encoded key, it
// returns [queue.ErrInvalidKey] and a unique substitute that is safe in subjects. Jobs with a
// literal "*" or ">", which the server does not transform, count as partition 0's.
func (n Names) ParseQueue(subject string) (partition int, k queue.Key, err error) {
	rest, ours := strings.CutPrefix(subject, n.lower+".")
	kind, rest, _ := strings.Cut(rest, ".")
	_, tail, cut := strings.Cut(rest, ".")
	switch {
	case ours && cut && (kind == "jobs" || kind == "admitted"):
		return 0, queue.StrangeKey(tail), fmt.Errorf("%w: %q has wildcards for tokens",
			queue.ErrInvalidKey, tail)
	case ours && cut && kind == "queue":
		var number string
		number, tail, cut = strings.Cut(tail, ".")
		partition, err = strconv.Atoi(number)
		if !cut || err != nil {
			return 0, queue.StrangeKey(subject), fmt.Errorf("%w: %q names no partition",
				queue.ErrInvalidKey, subject)
		}
	default:
		return 0, queue.StrangeKey(subject), fmt.Errorf("%w: %q is not the subject of a stored job",
			queue.ErrInvalidKey, subject)
	}
	if k, err = queue.ParseKey(tail); err != nil {
		return partition, queue.StrangeKey(tail), err
	}
	return partition, k, nil
}

// Stream is the name of a policy's stream.
func (n Names) Stream(policy string) string { return n.upper + "_" + policy }

// consumer is the name of an owner's consumer.
func (n Names) consumer(partition int, epoch uint64) string {
	return "valve-" + strconv.Itoa(partition) + "-" + strconv.FormatUint(epoch, 10)
}

func (n Names) parseConsumer(name string) (partition int, epoch uint64, ok bool) {
	rest, ours := strings.CutPrefix(name, "valve-")
	first, second, _ := strings.Cut(rest, "-")
	partition, err := strconv.Atoi(first)
	epoch, noEpoch := strconv.ParseUint(second, 10, 64)
	return partition, epoch, ours && err == nil && noEpoch == nil
}

// dead is the subject of a dead letter.
func (n Names) dead(policy string, k queue.Key) string {
	return n.lower + ".dead." + policy + "." + string(k)
}

// DeadStream is the name of a policy's stream of dead letters.
func (n Names) DeadStream(policy string) string { return n.upper + "_" + deadInfix + policy }

// history joins policy, sequence and key.
func (n Names) history(tokens ...string) string {
	return strings.Join(append([]string{n.lower, "history"}, tokens...), ".")
}

func (n Names) historyStream(policy string) string { return n.upper + "_" + historyInfix + policy }

func (n Names) minute(policy string) string { return n.lower + ".minute." + policy }
func (n Names) minutesStream() string       { return n.upper + "_MINUTES_OF_DAY" }

func (n Names) audit(policy, kind string) string {
	return n.lower + ".audit." + policy + "." + kind
}

func (n Names) auditStream() string { return n.upper + "_AUDIT" }

const historyInfix = "HISTORY_"

// Policy names contain no capital letters.
const deadInfix = "DEAD_"

// Valve is the subject of questions to a partition's owner.
func (n Names) Valve(policy string, partition int) string {
	return n.lower + ".valve." + policy + "." + strconv.Itoa(partition)
}

// Claims is the subject of claims to a partition's owner; see [job.Claim].
func (n Names) Claims(policy string, partition int) string {
	return n.lower + ".claim." + policy + "." + strconv.Itoa(partition)
}

// Work is the subject of a policy's offers to remote workers, in the queue group workGroup.
func (n Names) Work(policy string) string { return n.lower + ".work." + policy }

// WorkOfTarget is the subject of offers to other drainers, of a policy with a target.
func (n Names) WorkOfTarget(policy string) string { return n.Work(policy) + ".target" }

// ClaimsOf is the subject of remote workers' claims to the process id; the token may be "*". An
// inbox would need wider permissions.
func (n Names) ClaimsOf(policy, id, token string) string {
	return n.lower + ".claim." + policy + "." + id + "." + token
}

// IsReply refuses a client's reply subject that is the server's or Penstock's.
func (n Names) IsReply(subject string) bool {
	return subject != "" && subject[0] != '$' && subject != n.lower &&
		!strings.HasPrefix(subject, n.lower+".")
}

// workGroup is the queue group of workers at [Names.Work].
const workGroup = "workers"

// Requests matches an admitter's endpoint: submit, check, job, bucket or cancel.
func (n Names) Requests(endpoint string) string { return n.lower + "." + endpoint + ".>" }

// Request is the subject of a request about a key or, for job and cancel, a job's sequence.
func (n Names) Request(endpoint, policy, token string) string {
	return n.lower + "." + endpoint + "." + policy + "." + token
}

// ParseRequest undoes Request. A missing token is "_".
func (n Names) ParseRequest(endpoint, subject string) (policy, token string, ok bool) {
	rest, ok := strings.CutPrefix(subject, n.lower+"."+endpoint+".")
	if !ok || rest == "" {
		return "", "", false
	}
	policy, token, found := strings.Cut(rest, ".")
	if !found {
		token = string(queue.NoKey)
	}
	return policy, token, true
}

func (n Names) bucket(table string) string { return n.upper + "_" + table }

// doorJobs and doorAdmitted are captured by an open stream.
func (n Names) doorJobs(policy string) string     { return n.Jobs(policy, ">") }
func (n Names) doorAdmitted(policy string) string { return n.Admitted(policy, ">") }

// doorClosed is captured by a closed stream. No key has this subject, so a message sent there
// becomes a dead letter of partition 0.
func (n Names) doorClosed(policy string) string { return n.Queue(policy, 0, "%closed") }
