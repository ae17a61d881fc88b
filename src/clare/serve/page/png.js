// Grey PNG files written byte by byte: browsers that guard against fingerprinting add noise to what a canvas returns.

const SIGNATURE = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a];
const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, value) => {
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? 0xedb88320 ^ (value >>> 1) : value >>> 1;
  return value;
});

/** A PNG of grey bytes, row by row; small enough to go uncompressed. */
export function greyPng(pixels, side) {
  const rows = [];
  for (let y = 0; y < side; y++) rows.push(0, ...pixels.subarray(y * side, (y + 1) * side));
  const [eightBits, grey] = [8, 0];
  const header = [...fourBytes(side), ...fourBytes(side), eightBits, grey, 0, 0, 0];
  const parts = [...SIGNATURE, ...chunk("IHDR", header), ...chunk("IDAT", stored(rows)), ...chunk("IEND", [])];
  return new Blob([Uint8Array.from(parts)], { type: "image/png" });
}

function chunk(name, data) {
  const body = [...name].map((letter) => letter.charCodeAt(0)).concat(data);
  return [...fourBytes(data.length), ...body, ...fourBytes(crc32(body))];
}

// One stored block of zlib, which holds up to 65535 bytes; 28 rows of 29 are 812.
function stored(data) {
  const [low, high] = [data.length & 255, data.length >>> 8];
  return [0x78, 0x01, 0x01, low, high, low ^ 255, high ^ 255, ...data, ...fourBytes(adler32(data))];
}

function crc32(data) {
  return ~data.reduce((crc, byte) => CRC_TABLE[(crc ^ byte) & 255] ^ (crc >>> 8), 0xffffffff) >>> 0;
}

function adler32(data) {
  let [one, two] = [1, 0];
  for (const byte of data) {
    one = (one + byte) % 65521;
    two = (two + one) % 65521;
  }
  return ((two << 16) | one) >>> 0;
}

function fourBytes(value) {
  return [value >>> 24, (value >>> 16) & 255, (value >>> 8) & 255, value & 255];
}
