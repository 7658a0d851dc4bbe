package qstash

import (
	"encoding/base64"
	"errors"

	json "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Failure is what a failure callback says about a message that ran out of retries.
type Failure struct {
	SourceMessageID string
	DLQID           string
	URL             string
	Status          int // of the last attempt; 0: none answered
	Retried         int
	MaxRetries      int
	SourceBody      []byte // of the message
}

// DecodeFailure reads the body of a failure callback.
func DecodeFailure(body []byte) (Failure, error) {
	var w struct {
		Status          int    `json:"status"`
		Retried         int    `json:"retried"`
		MaxRetries      int    `json:"maxRetries"`
		DLQID           string `json:"dlqId"`
		SourceMessageID string `json:"sourceMessageId"`
		URL             string `json:"url"`
		SourceBody      string `json:"sourceBody"`
	}
	if err := json.Unmarshal(body, &w, jsontext.AllowDuplicateNames(true)); err != nil {
		return Failure{}, errors.New("failure callback is not the JSON that was expected")
	}
	source, err := base64.StdEncoding.DecodeString(w.SourceBody)
	if err != nil {
		return Failure{}, errors.New("failure callback: sourceBody is not base64")
	}
	return Failure{w.SourceMessageID, w.DLQID, w.URL, w.Status, w.Retried, w.MaxRetries, source}, nil
}
