package natslog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// stream is one stream of JetStream. All its methods ask the stream's leader.
type stream struct {
	server *server
	name   string
}

// message is a stored message, as MSG.GET answers.
type message struct {
	Subject string `json:"subject"`
	Seq     uint64 `json:"seq"`
	Data    []byte `json:"data"`
}

// get is the request for one message: the one at Seq, or the last one of Last.
type get struct {
	Seq  uint64 `json:"seq,omitempty"`
	Last string `json:"last_by_subj,omitempty"`
}

// errAbsent: the stream holds no such message.
var errAbsent = errors.New("there is no such message")

// get returns a message of at most most bytes, or errAbsent. A leader answers from what
// it has stored, whereas JetStream's direct gets may be answered by a replica that lags.
func (s stream) get(ctx context.Context, which get, most int) (message, error) {
	var answer struct {
		Message *message `json:"message"`
	}
	err := s.server.ask(ctx, "$JS.API.STREAM.MSG.GET."+s.name, which, &answer)
	switch {
	case isCode(err, codeNotFound):
		return message{}, errAbsent
	case err != nil:
		return message{}, err
	case answer.Message == nil || which.Seq != 0 && answer.Message.Seq != which.Seq || which.Last != "" && answer.Message.Subject != which.Last:
		return message{}, errors.New("the server answers with another message than was asked for")
	case len(answer.Message.Data) > most:
		return message{}, fmt.Errorf("a message has %d bytes: %w", len(answer.Message.Data), journal.ErrCorrupt)
	}
	return *answer.Message, nil
}

// infoRequest asks for what a stream is, and for the subjects of its messages from
// Offset on.
type infoRequest struct {
	Filter string `json:"subjects_filter,omitempty"`
	Offset int    `json:"offset,omitempty"`
}

// infoAnswer is one page of an answer.
type infoAnswer struct {
	jetstream.StreamInfo
	Total int `json:"total"` // of subjects, in all pages
}

// look returns what the stream is at this moment, or errNoStream. A leader that was
// elected just now has not heard from the others yet: look asks again for as long as an
// election takes.
func (s stream) look(ctx context.Context, request infoRequest) (infoAnswer, error) {
	deadline := time.Now().Add(electedAfter)
	for n := 1; ; n++ {
		answer, err := s.info(ctx, request)
		if !errors.Is(err, errNotLeading) || time.Now().After(deadline) {
			return answer, err
		}
		if err := between.Pause(ctx, n); err != nil {
			return answer, err
		}
	}
}

// errNotLeading: the server that answered may have been replaced as the leader.
var errNotLeading = errors.New("the stream's leader has not heard from a majority of its replicas, so that it may be out of date")

// info asks once. It returns errNoStream or errNotLeading, among others.
func (s stream) info(ctx context.Context, request infoRequest) (infoAnswer, error) {
	var answer infoAnswer
	err := s.server.ask(ctx, "$JS.API.STREAM.INFO."+s.name, request, &answer)
	switch {
	case isCode(err, codeNoStream):
		return answer, errNoStream
	case err == nil && !leads(&answer.StreamInfo):
		return answer, errNotLeading
	}
	return answer, err
}

// errNoStream: there is no stream of that name.
var errNoStream = errors.New("there is no such stream")

// electedAfter is less than how long replicas wait for a leader that is silent before
// they elect another one: nats-server waits four seconds.
const electedAfter = 3 * time.Second

// leads says whether the server that answered has lately heard from a majority of the
// stream's replicas, itself among them: then these have elected no other leader.
func leads(info *jetstream.StreamInfo) bool {
	heard := 1
	if info.Cluster != nil {
		for _, peer := range info.Cluster.Replicas {
			if peer != nil && peer.Active > 0 && peer.Active < electedAfter {
				heard++
			}
		}
	}
	return 2*heard > info.Config.Replicas
}

// purge is the request to delete the messages below Seq, or all of Filter.
type purge struct {
	Seq    uint64 `json:"seq,omitempty"`
	Filter string `json:"filter,omitempty"`
}

// purge returns how many messages it deleted.
func (s stream) purge(ctx context.Context, which purge) (int, error) {
	var answer struct {
		Success bool   `json:"success"`
		Purged  uint64 `json:"purged"`
	}
	err := s.server.ask(ctx, "$JS.API.STREAM.PURGE."+s.name, which, &answer)
	if err == nil && !answer.Success {
		err = errors.New("the server did not delete")
	}
	return int(answer.Purged), err
}

// create makes the stream. If there is one already, that stays as it is.
func (s stream) create(ctx context.Context, cfg jetstream.StreamConfig) error {
	var answer jetstream.StreamInfo
	err := s.server.ask(ctx, "$JS.API.STREAM.CREATE."+s.name, cfg, &answer)
	if isCode(err, codeNameInUse) {
		return nil
	}
	return err
}
