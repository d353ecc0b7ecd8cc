package trace

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"time"
)

// Field numbers and types of TensorFlow's Event and its nested messages. They are defined in event.proto,
// summary.proto, tensor.proto, and in plugin_data.proto of TensorBoard's plugins. A key in the wire format is
// number<<3 | type.
const (
	varint = 0
	fixed8 = 1
	bytesN = 2
	fixed4 = 5

	eventWallTime    = 1<<3 | fixed8
	eventStep        = 2<<3 | varint
	eventFileVersion = 3<<3 | bytesN
	eventSummary     = 5<<3 | bytesN
	eventSessionLog  = 7<<3 | bytesN

	summaryValue  = 1<<3 | bytesN
	valueTag      = 1<<3 | bytesN
	valueSimple   = 2<<3 | fixed4
	valueTensor   = 8<<3 | bytesN
	valueMetadata = 9<<3 | bytesN

	metadataPlugin = 1<<3 | bytesN
	metadataClass  = 4<<3 | varint
	pluginName     = 1<<3 | bytesN
	pluginContent  = 2<<3 | bytesN
	classTensor    = 2

	tensorDType  = 1<<3 | varint
	tensorShape  = 2<<3 | bytesN
	tensorString = 8<<3 | bytesN
	shapeDim     = 2<<3 | bytesN
	dimSize      = 1<<3 | varint
	dtypeFloat   = 1
	dtypeString  = 7

	sessionStart = 1 // value of SessionLog.status
)

// castagnoli is the table of the polynomial of CRC-32C.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked returns the checksum that records contain. The CRC of data that contains CRCs is weak, so TensorFlow rotates
// the CRC and adds a constant.
func masked(data []byte) uint32 {
	crc := crc32.Checksum(data, castagnoli)
	return (crc>>15 | crc<<17) + 0xa282ead8
}

// appendRecord appends data as a record.
func appendRecord(b, data []byte) []byte {
	at := len(b)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(data)))
	b = binary.LittleEndian.AppendUint32(b, masked(b[at:]))
	b = append(b, data...)
	return binary.LittleEndian.AppendUint32(b, masked(data))
}

func appendBytes(b []byte, key byte, v []byte) []byte {
	b = binary.AppendUvarint(append(b, key), uint64(len(v)))
	return append(b, v...)
}

func appendString(b []byte, key byte, v string) []byte {
	b = binary.AppendUvarint(append(b, key), uint64(len(v)))
	return append(b, v...)
}

func appendInt(b []byte, key byte, v int64) []byte {
	return binary.AppendUvarint(append(b, key), uint64(v))
}

// appendEvent appends the first fields of an Event.
func appendEvent(b []byte, step int64, at time.Time) []byte {
	b = binary.LittleEndian.AppendUint64(append(b, eventWallTime), math.Float64bits(float64(at.UnixMicro())/1e6))
	return appendInt(b, eventStep, step)
}

// Scalar is one value of a step.
type Scalar struct {
	Tag   string // for example "train/loss"; the part before the slash groups charts
	Value float64
}

// scalarBytes returns the size of the Value message of a scalar.
func scalarBytes(s *Scalar) int { return 1 + uvarintBytes(len(s.Tag)) + len(s.Tag) + 1 + 4 }

func uvarintBytes(n int) int {
	size := 1
	for ; n >= 0x80; n >>= 7 {
		size++
	}
	return size
}

// appendScalars appends an Event that contains values.
func appendScalars(b []byte, step int64, at time.Time, values []Scalar) []byte {
	b = appendEvent(b, step, at)
	size := 0
	for i := range values {
		n := scalarBytes(&values[i])
		size += 1 + uvarintBytes(n) + n
	}
	b = binary.AppendUvarint(append(b, eventSummary), uint64(size))
	for i := range values {
		v := &values[i]
		b = binary.AppendUvarint(append(b, summaryValue), uint64(scalarBytes(v)))
		b = appendString(b, valueTag, v.Tag)
		b = binary.LittleEndian.AppendUint32(append(b, valueSimple), math.Float32bits(float32(v.Value)))
	}
	return b
}

// appendTensor appends an Event that contains one tensor for a plugin.
func appendTensor(b []byte, step int64, at time.Time, tag, plugin string, content, tensor []byte) []byte {
	data := appendString(nil, pluginName, plugin)
	if content != nil {
		data = appendBytes(data, pluginContent, content)
	}
	metadata := appendInt(appendBytes(nil, metadataPlugin, data), metadataClass, classTensor)
	value := appendBytes(appendString(nil, valueTag, tag), valueMetadata, metadata)
	value = appendBytes(value, valueTensor, tensor)
	return appendBytes(appendEvent(b, step, at), eventSummary, appendBytes(nil, summaryValue, value))
}

// textTensor returns a tensor of shape (1) that contains a string.
func textTensor(text string) []byte {
	shape := appendBytes(nil, shapeDim, appendInt(nil, dimSize, 1))
	t := appendBytes(appendInt(nil, tensorDType, dtypeString), tensorShape, shape)
	return appendString(t, tensorString, text)
}

// Setting is a hyperparameter. Its value is a string, a float64 or a bool.
type Setting struct {
	Name  string
	Value any
}

// Tags and fields of TensorBoard's hparams plugin.
const (
	hparamsPlugin = "hparams"
	hparamsTag    = "_hparams_/session_start_info"

	hparamsSessionStart = 3<<3 | bytesN // field of HParamsPluginData
	sessionHparams      = 1<<3 | bytesN // field of SessionStartInfo, a map
	sessionGroup        = 4<<3 | bytesN
	sessionStartSeconds = 5<<3 | fixed8
	mapKey, mapValue    = 1<<3 | bytesN, 2<<3 | bytesN
	valueNumber         = 2<<3 | fixed8 // field of google.protobuf.Value
	valueText           = 3<<3 | bytesN
	valueBool           = 4<<3 | varint
)

// appendSettings appends an Event that contains the settings of the run for the hparams plugin.
func appendSettings(b []byte, step int64, at time.Time, group string, settings []Setting) []byte {
	var start []byte
	for _, s := range settings {
		var v []byte
		switch value := s.Value.(type) {
		case float64:
			v = binary.LittleEndian.AppendUint64([]byte{valueNumber}, math.Float64bits(value))
		case bool:
			v = []byte{valueBool, 0}
			if value {
				v[1] = 1
			}
		case string:
			v = appendString(nil, valueText, value)
		default:
			panic("trace: setting " + s.Name + ": want a string, a float64 or a bool")
		}
		start = appendBytes(start, sessionHparams, appendBytes(appendString(nil, mapKey, s.Name), mapValue, v))
	}
	start = appendString(start, sessionGroup, group)
	start = binary.LittleEndian.AppendUint64(append(start, sessionStartSeconds),
		math.Float64bits(float64(at.UnixMicro())/1e6))
	none := appendBytes(appendInt(nil, tensorDType, dtypeFloat), tensorShape,
		appendBytes(nil, shapeDim, appendInt(nil, dimSize, 0)))
	return appendTensor(b, step, at, hparamsTag, hparamsPlugin, appendBytes(nil, hparamsSessionStart, start), none)
}

// stepOf returns the step of an Event. ok is false if the Event cannot be parsed. Fields may have any order; unknown
// fields are skipped.
func stepOf(event []byte) (step int64, ok bool) {
	for len(event) > 0 {
		key, n := binary.Uvarint(event)
		if n <= 0 {
			return 0, false
		}
		event = event[n:]
		size := 0
		switch key & 7 {
		case varint:
			v, n := binary.Uvarint(event)
			if n <= 0 {
				return 0, false
			}
			if key == eventStep {
				step = int64(v)
			}
			size = n
		case fixed8:
			size = 8
		case fixed4:
			size = 4
		case bytesN:
			length, n := binary.Uvarint(event)
			if n <= 0 || length > uint64(len(event)-n) {
				return 0, false
			}
			size = n + int(length)
		default:
			return 0, false
		}
		if size > len(event) {
			return 0, false
		}
		event = event[size:]
	}
	return step, true
}

// versionEvent returns the Event at the start of every file.
func versionEvent(at time.Time) []byte {
	b := binary.LittleEndian.AppendUint64([]byte{eventWallTime}, math.Float64bits(float64(at.UnixMicro())/1e6))
	return appendString(b, eventFileVersion, "brain.Event:2")
}

// startEvent returns an Event that makes readers discard events of this step and of later steps.
func startEvent(step int64, at time.Time) []byte {
	return appendBytes(appendEvent(nil, step, at), eventSessionLog, []byte{1<<3 | varint, sessionStart})
}
