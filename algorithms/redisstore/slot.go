package redisstore

import "strings"

// slotOf returns a name's slot in a cluster: CRC16 (XMODEM) of its hash tag modulo 16384 (Redis
// Cluster specification).
func slotOf(name string) uint16 {
	if _, rest, found := strings.Cut(name, "{"); found {
		if tag, _, found := strings.Cut(rest, "}"); found && tag != "" {
			name = tag
		}
	}
	var crc uint16
	for i := range len(name) {
		crc ^= uint16(name[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}
