package hubspottest

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// contact is one record.
type contact struct {
	id         string
	properties map[string]string
	additional []string // secondary addresses, lower-cased
	created    time.Time
	updated    time.Time
	archived   bool
}

// contactInput is one input of a batch.
type contactInput struct {
	ID         string            `json:"id"`
	IDProperty string            `json:"idProperty"`
	TraceID    string            `json:"objectWriteTraceId"`
	Properties map[string]string `json:"properties"`
}

// contacts serves /crm/…/contacts….
func (c *call) contacts(path []string) {
	method, operation := c.r.Method, strings.Join(path, "/")
	switch {
	case method == http.MethodPost && operation == "batch/upsert":
		c.writeBatch(c.upsert)
	case method == http.MethodPost && operation == "batch/update":
		c.writeBatch(c.update)
	case method == http.MethodPost && operation == "batch/create":
		c.writeBatch(c.create)
	case method == http.MethodPost && operation == "batch/read":
		c.readBatch()
	case method == http.MethodPost && operation == "batch/archive":
		c.archiveBatch()
	case method == http.MethodPost && operation == "gdpr-delete":
		c.gdprDelete()
	case method == http.MethodPost && operation == "search":
		c.write(http.StatusOK, map[string]any{"total": 0, "results": []any{}}) // search lags behind writes: it never finds what was just written
	case method == http.MethodPost && operation == "":
		c.single(c.create, contactInput{})
	case len(path) == 1 && method == http.MethodPatch:
		c.single(c.update, contactInput{ID: path[0], IDProperty: c.query.Get("idProperty")})
	case len(path) == 1 && method == http.MethodGet:
		if k := c.find(path[0], c.query.Get("idProperty")); k != nil {
			c.write(http.StatusOK, k.view(strings.Split(c.query.Get("properties"), ",")))
			return
		}
		c.notFound()
	case len(path) == 1 && method == http.MethodDelete:
		if k := c.find(path[0], ""); k != nil {
			c.a.remove(k)
		}
		c.answers.status, c.answers.body = http.StatusNoContent, nil
	default:
		c.notFound()
	}
}

// problem is why one input is refused.
type problem struct {
	status   int
	category string
	message  string
	context  map[string][]string
}

type operation func(contactInput) (map[string]any, *problem)

func (c *call) single(do operation, input contactInput) {
	var b struct {
		Properties map[string]string `json:"properties"`
	}
	if !c.decode(&b) {
		return
	}
	input.Properties = b.Properties
	result, p := do(input)
	if p != nil {
		c.fail(p.status, p.category, p.message, map[string]any{"context": p.context})
		return
	}
	status := http.StatusOK
	if input.ID == "" {
		status = http.StatusCreated
	}
	c.write(status, result)
}

// writeBatch carries a batch out. Twin ids refuse the whole. With trace ids the good
// rows are written and the bad ones named (207); without, one bad row refuses all.
func (c *call) writeBatch(do operation) {
	var b struct {
		Inputs []contactInput `json:"inputs"`
	}
	if !c.decode(&b) || c.tooMany(len(b.Inputs)) || c.hasTwins(b.Inputs) {
		return
	}
	traced := !slices.ContainsFunc(b.Inputs, func(i contactInput) bool { return i.TraceID == "" })
	if !traced {
		for _, input := range b.Inputs {
			if p := c.check(input); p != nil {
				c.fail(p.status, p.category, p.message, map[string]any{"context": p.context})
				return
			}
		}
	}
	var results, errors []any
	for _, input := range b.Inputs {
		result, p := do(input)
		if p == nil {
			if input.TraceID != "" {
				result["objectWriteTraceId"] = input.TraceID
			}
			results = append(results, result)
			continue
		}
		if !traced {
			c.fail(p.status, p.category, p.message, map[string]any{"context": p.context})
			return
		}
		context := maps.Clone(p.context)
		if context == nil {
			context = map[string][]string{}
		}
		context["objectWriteTraceId"] = []string{input.TraceID}
		errors = append(errors, inputError(p.category, p.message, context))
	}
	status := http.StatusOK
	if len(errors) > 0 {
		status = http.StatusMultiStatus
	}
	c.envelope(status, results, errors)
}

func (c *call) hasTwins(inputs []contactInput) bool {
	seen := map[string]bool{}
	for _, input := range inputs {
		if input.ID != "" && seen[input.ID] {
			c.fail(http.StatusBadRequest, "VALIDATION_ERROR", "Duplicate IDs found in batch input: ["+input.ID+"]. IDs must be unique",
				map[string]any{"context": map[string][]string{"ids": {input.ID}}})
			return true
		}
		seen[input.ID] = true
	}
	return false
}

func (c *call) upsert(input contactInput) (map[string]any, *problem) {
	if input.IDProperty == "" || !c.a.properties[input.IDProperty].HasUniqueValue && input.IDProperty != "email" {
		return nil, invalid("idProperty must name a property with unique values")
	}
	if p := c.check(input); p != nil {
		return nil, p
	}
	properties := maps.Clone(input.Properties)
	if properties == nil {
		properties = map[string]string{}
	}
	properties[input.IDProperty] = input.ID
	if k := c.find(input.ID, input.IDProperty); k != nil {
		if p := c.set(k, properties); p != nil {
			return nil, p
		}
		return withNew(k.view(nil), false), nil
	}
	k, p := c.make(properties)
	if p != nil {
		return nil, p
	}
	return withNew(k.view(nil), true), nil
}

func withNew(view map[string]any, isNew bool) map[string]any {
	view["new"] = isNew
	return view
}

func (c *call) update(input contactInput) (map[string]any, *problem) {
	if input.IDProperty == "email" && len(c.path) > 0 && c.path[len(c.path)-1] == "update" {
		return nil, invalid("batch update does not take idProperty=email")
	}
	k := c.find(input.ID, input.IDProperty)
	if k == nil {
		return nil, &problem{http.StatusNotFound, "OBJECT_NOT_FOUND", "No contact with that id", map[string][]string{"ids": {input.ID}}}
	}
	if p := c.check(input); p != nil {
		return nil, p
	}
	if p := c.set(k, input.Properties); p != nil {
		return nil, p
	}
	return k.view(nil), nil
}

func (c *call) create(input contactInput) (map[string]any, *problem) {
	if p := c.check(input); p != nil {
		return nil, p
	}
	k, p := c.make(input.Properties)
	if p != nil {
		return nil, p
	}
	return k.view(nil), nil
}

// make creates a record, unless its address belongs to another one.
func (c *call) make(properties map[string]string) (*contact, *problem) {
	if owner := c.a.byEmail[strings.ToLower(properties["email"])]; owner != nil && properties["email"] != "" {
		return nil, &problem{http.StatusConflict, "CONFLICT", "Contact already exists. Existing ID: " + owner.id, nil}
	}
	c.s.nextID++
	k := &contact{id: strconv.FormatInt(c.s.nextID, 10), properties: map[string]string{}, created: c.now}
	c.a.contacts[k.id] = k
	if p := c.set(k, properties); p != nil {
		delete(c.a.contacts, k.id)
		return nil, p
	}
	return k, nil
}

// set writes properties. An address moves to this record; another record that owns it
// is a conflict. Sending a secondary address as email changes the primary one.
func (c *call) set(k *contact, properties map[string]string) *problem {
	for name, value := range properties {
		owner := c.owner(name, value)
		if owner != nil && owner != k {
			return &problem{http.StatusConflict, "CONFLICT", "Contact already exists. Existing ID: " + owner.id, nil}
		}
	}
	for name, value := range properties {
		c.setOne(k, name, value)
	}
	k.updated = c.now
	return nil
}

func (c *call) owner(name, value string) *contact {
	if value == "" {
		return nil
	}
	if name == "email" {
		return c.a.byEmail[strings.ToLower(value)]
	}
	if c.a.properties[name].HasUniqueValue {
		return c.a.byUnique[name+"\x00"+value]
	}
	return nil
}

func (c *call) setOne(k *contact, name, value string) {
	old := k.properties[name]
	switch {
	case name == "email":
		value = strings.ToLower(value)
		if old != "" && old != value {
			if slices.Contains(k.additional, value) { // primary and secondary change places
				k.additional = append(slices.DeleteFunc(k.additional, func(a string) bool { return a == value }), old)
			} else {
				delete(c.a.byEmail, old)
			}
		}
		c.a.byEmail[value] = k
		k.properties["hs_additional_emails"] = strings.Join(k.additional, ";")
	case c.a.properties[name].HasUniqueValue:
		delete(c.a.byUnique, name+"\x00"+old)
		if value != "" {
			c.a.byUnique[name+"\x00"+value] = k
		}
	case strings.HasPrefix(value, ";"): // a leading semicolon appends
		parts := strings.Split(strings.Trim(old, ";"), ";")
		for _, add := range strings.Split(strings.Trim(value, ";"), ";") {
			if !slices.Contains(parts, add) {
				parts = append(parts, add)
			}
		}
		value = strings.Trim(strings.Join(parts, ";"), ";")
	}
	k.properties[name] = value
	if value == "" {
		delete(k.properties, name)
	}
}

// find returns the record with a value of an identifier: our own property, any of its
// addresses, or HubSpot's id.
func (c *call) find(id, idProperty string) *contact {
	var k *contact
	switch idProperty {
	case "", "hs_object_id":
		k = c.a.contacts[id]
	case "email":
		k = c.a.byEmail[strings.ToLower(id)]
	default:
		k = c.a.byUnique[idProperty+"\x00"+id]
	}
	if k != nil && k.archived {
		return nil
	}
	return k
}

func (k *contact) view(names []string) map[string]any {
	properties := map[string]string{"hs_object_id": k.id}
	for name, value := range k.properties {
		if len(names) == 0 || slices.Contains(names, name) || name == "email" {
			properties[name] = value
		}
	}
	if len(k.additional) > 0 {
		properties["hs_additional_emails"] = strings.Join(k.additional, ";")
	}
	return map[string]any{
		"id": k.id, "properties": properties, "createdAt": stamp(k.created), "updatedAt": stamp(k.updated), "archived": k.archived,
	}
}

func (c *call) readBatch() {
	var b struct {
		Inputs     []contactInput `json:"inputs"`
		Properties []string       `json:"properties"`
		IDProperty string         `json:"idProperty"`
	}
	if !c.decode(&b) || c.tooMany(len(b.Inputs)) {
		return
	}
	var results, errors []any
	var missing []string
	seen := map[string]bool{}
	for _, input := range b.Inputs {
		k := c.find(input.ID, b.IDProperty)
		if k != nil && b.IDProperty == "email" && c.a.ReadsMissSecondaryEmail && k.properties["email"] != strings.ToLower(input.ID) {
			k = nil
		}
		if k == nil {
			missing = append(missing, input.ID)
			continue
		}
		if !seen[k.id] {
			results = append(results, k.view(b.Properties))
		}
		seen[k.id] = true
	}
	status := http.StatusOK
	if len(missing) > 0 {
		status = http.StatusMultiStatus
		errors = append(errors, inputError("OBJECT_NOT_FOUND", "Could not get some CONTACT objects, they may be deleted or not exist.",
			map[string][]string{"ids": missing}))
	}
	c.envelope(status, results, errors)
}

func (c *call) archiveBatch() {
	var b struct {
		Inputs []contactInput `json:"inputs"`
	}
	if !c.decode(&b) || c.tooMany(len(b.Inputs)) {
		return
	}
	for _, input := range b.Inputs {
		if k := c.find(input.ID, ""); k != nil {
			c.a.remove(k)
		}
	}
	c.answers.status, c.answers.body = http.StatusNoContent, nil
}

func (a *account) remove(k *contact) {
	k.archived = true
	delete(a.contacts, k.id)
	for email, owner := range a.byEmail {
		if owner == k {
			delete(a.byEmail, email)
		}
	}
	for value, owner := range a.byUnique {
		if owner == k {
			delete(a.byUnique, value)
		}
	}
	for _, members := range a.members {
		delete(members, k.id)
	}
}

func (c *call) gdprDelete() {
	var b struct {
		ObjectID   string `json:"objectId"`
		IDProperty string `json:"idProperty"`
	}
	if !c.decode(&b) {
		return
	}
	if k := c.find(b.ObjectID, b.IDProperty); k != nil {
		c.a.remove(k)
	}
	c.answers.status, c.answers.body = http.StatusNoContent, nil
}
