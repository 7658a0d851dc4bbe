package clients

import (
	"time"

	"hubsync/shared/config"
)

// Secrets returns a store of secrets by ARN, for what reads its configuration itself.
func (s *Set) Secrets() *config.Store { return config.NewStore(fetchSecret(), time.Now) }
