package hubspottest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

func invalid(message string) *problem {
	return &problem{http.StatusBadRequest, "VALIDATION_ERROR", message, nil}
}

// invalidProperty writes HubSpot's text, which embeds JSON with a code.
func invalidProperty(name, code, message string) *problem {
	inner, err := json.Marshal([]map[string]any{{"isValid": false, "message": message, "error": code, "name": name}})
	if err != nil {
		inner = []byte("[]")
	}
	return invalid("Property values were not valid: " + string(inner))
}

// check validates the properties of an input.
func (c *call) check(input contactInput) *problem {
	for name, value := range input.Properties {
		p, known := c.a.properties[name]
		if !known {
			return invalidProperty(name, "PROPERTY_DOESNT_EXIST", fmt.Sprintf("Property %q does not exist", name))
		}
		if value == "" {
			continue
		}
		if name == "email" && !validEmail(value) {
			return invalidProperty(name, "INVALID_EMAIL", "Email address "+value+" is invalid")
		}
		if code := p.problem(strings.Trim(value, ";")); code != "" {
			return invalidProperty(name, code, value+" was not valid for "+name)
		}
	}
	return nil
}

// problem returns the code of a value that the property's type refuses.
func (p Property) problem(value string) string {
	switch p.Type {
	case "enumeration", "bool":
		options := p.Options
		if p.Type == "bool" {
			options = []string{"true", "false"}
		}
		for part := range strings.SplitSeq(value, ";") {
			if len(options) > 0 && !slices.Contains(options, part) {
				return "INVALID_OPTION"
			}
		}
	case "number":
		if _, err := strconv.ParseFloat(value, 64); err != nil {
			return "INVALID_INTEGER"
		}
	case "date":
		if ms, err := strconv.ParseInt(value, 10, 64); err == nil {
			if ms%86_400_000 != 0 {
				return "INVALID_DATE"
			}
		} else if _, err := time.Parse(time.DateOnly, value); err != nil {
			return "INVALID_DATE"
		}
	case "datetime":
		if _, err := strconv.ParseInt(value, 10, 64); err != nil {
			if _, err := time.Parse(time.RFC3339, value); err != nil {
				return "INVALID_DATE"
			}
		}
	}
	return ""
}

func (p Property) view() map[string]any {
	fieldType := map[string]string{"enumeration": "select", "bool": "booleancheckbox", "date": "date", "number": "number"}[p.Type]
	if fieldType == "" {
		fieldType = "text"
	}
	if p.Multi {
		fieldType = "checkbox"
	}
	options := []map[string]string{}
	for _, o := range p.Options {
		options = append(options, map[string]string{"label": o, "value": o})
	}
	return map[string]any{
		"name": p.Name, "label": p.Name, "type": p.Type, "fieldType": fieldType, "hasUniqueValue": p.HasUniqueValue, "options": options,
		"groupName": "contactinformation", "modificationMetadata": map[string]bool{"readOnlyValue": p.ReadOnly},
	}
}

// propertiesOf serves /crm/v3/properties/contacts[/name].
func (c *call) propertiesOf(path []string) {
	switch {
	case len(path) == 0 && c.r.Method == http.MethodGet:
		results := []any{}
		for _, p := range c.a.properties {
			results = append(results, p.view())
		}
		c.write(http.StatusOK, map[string]any{"results": results})
	case len(path) == 0 && c.r.Method == http.MethodPost:
		var b struct {
			Name           string `json:"name"`
			Type           string `json:"type"`
			HasUniqueValue bool   `json:"hasUniqueValue"`
		}
		if !c.decode(&b) {
			return
		}
		if _, exists := c.a.properties[b.Name]; exists {
			c.fail(http.StatusConflict, "OBJECT_ALREADY_EXISTS", "A property with that name already exists.")
			return
		}
		p := Property{Name: b.Name, Type: b.Type, HasUniqueValue: b.HasUniqueValue}
		c.a.properties[b.Name] = p
		c.write(http.StatusCreated, p.view())
	case len(path) == 1 && c.r.Method == http.MethodGet:
		if p, ok := c.a.properties[path[0]]; ok {
			c.write(http.StatusOK, p.view())
			return
		}
		c.notFound()
	default:
		c.notFound()
	}
}

// lists serves /crm/lists….
func (c *call) lists(path []string) {
	var list *List
	for i := range c.a.Lists {
		if len(path) > 0 && c.a.Lists[i].ID == path[0] {
			list = &c.a.Lists[i]
		}
	}
	switch {
	case strings.Join(path, "/") == "records/memberships/batch/read" && c.r.Method == http.MethodPost:
		c.readMemberships()
	case len(path) == 0 && c.r.Method == http.MethodGet:
		c.listsByID(c.query["listIds"])
	case list == nil:
		c.notFound()
	case len(path) == 1 && c.r.Method == http.MethodGet:
		c.write(http.StatusOK, map[string]any{"list": list.view()})
	case len(path) >= 2 && path[1] == "memberships":
		c.memberships(*list, strings.Join(path[2:], "/"))
	default:
		c.notFound()
	}
}

func (l List) view() map[string]any {
	return map[string]any{"listId": l.ID, "name": "List " + l.ID, "objectTypeId": "0-1", "processingType": l.ProcessingType}
}

// listsByID answers with those that exist.
func (c *call) listsByID(ids []string) {
	lists := []any{}
	for _, l := range c.a.Lists {
		if slices.Contains(ids, l.ID) {
			lists = append(lists, l.view())
		}
	}
	c.write(http.StatusOK, map[string]any{"lists": lists})
}

// tokenInfo answers what a private app's token may do.
func (c *call) tokenInfo() {
	var b struct {
		Key string `json:"tokenKey"`
	}
	if !c.decode(&b) {
		return
	}
	if b.Key != c.a.Token || c.a.Scopes == nil {
		c.fail(http.StatusBadRequest, "VALIDATION_ERROR", "The token is not a private app's")
		return
	}
	c.write(http.StatusOK, map[string]any{"userId": 1, "hubId": c.a.HubID, "appId": 2, "scopes": c.a.Scopes})
}

// readMemberships answers for the records that are in a list.
func (c *call) readMemberships() {
	var b struct {
		Inputs []struct {
			RecordID string `json:"recordId"`
		} `json:"inputs"`
	}
	if !c.decode(&b) || c.tooMany(len(b.Inputs)) {
		return
	}
	results := []any{}
	for _, input := range b.Inputs {
		k := c.find(input.RecordID, "")
		if k == nil {
			continue
		}
		lists := []any{}
		for _, l := range c.a.Lists {
			if c.a.members[l.ID][k.id] || c.a.members[l.ID][input.RecordID] {
				lists = append(lists, map[string]any{"listId": l.ID, "listVersion": 1, "firstAddedTimestamp": stamp(c.now), "lastAddedTimestamp": stamp(c.now)})
			}
		}
		results = append(results, map[string]any{"objectTypeId": "0-1", "recordId": input.RecordID, "recordListMemberships": lists})
	}
	c.envelope(http.StatusOK, results, nil)
}

func (c *call) memberships(list List, operation string) {
	members := c.a.members[list.ID]
	if operation == "" && c.r.Method == http.MethodGet {
		results := []any{}
		for id := range members {
			results = append(results, map[string]string{"recordId": id})
		}
		c.write(http.StatusOK, map[string]any{"results": results, "total": len(results)})
		return
	}
	if list.ProcessingType == "DYNAMIC" {
		c.fail(http.StatusBadRequest, "VALIDATION_ERROR", "List memberships of a DYNAMIC list cannot be changed")
		return
	}
	var add, remove []string
	var ok bool
	switch operation {
	case "add":
		ok = c.decode(&add)
	case "remove":
		ok = c.decode(&remove)
	case "add-and-remove":
		var b struct {
			Add    []string `json:"recordIdsToAdd"`
			Remove []string `json:"recordIdsToRemove"`
		}
		ok = c.decode(&b)
		add, remove = b.Add, b.Remove
	default:
		c.notFound()
		return
	}
	if ok && c.r.Method == http.MethodPut {
		c.write(http.StatusOK, c.change(members, add, remove))
	} else if ok {
		c.notFound()
	}
}

func (c *call) change(members map[string]bool, add, remove []string) map[string]any {
	added, removed, missing := []string{}, []string{}, []string{}
	for _, id := range add {
		switch {
		case c.find(id, "") == nil:
			missing = append(missing, id)
		case !members[id]:
			members[id] = true
			added = append(added, id)
		}
	}
	for _, id := range remove {
		if members[id] {
			delete(members, id)
			removed = append(removed, id)
		}
	}
	return map[string]any{"recordIdsAdded": added, "recordIdsRemoved": removed, "recordIdsMissing": missing}
}
