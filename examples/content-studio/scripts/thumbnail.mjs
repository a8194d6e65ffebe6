// node scripts/thumbnail.mjs TEASER THUMBNAIL
// Scales the teaser down, puts the play badge on it and prints what was written, as JSON.
import { fileURLToPath } from "node:url";
import sharp from "sharp";

const [teaser, thumbnail] = process.argv.slice(2);
if (!thumbnail) {
  console.error("usage: node scripts/thumbnail.mjs TEASER THUMBNAIL");
  process.exit(2);
}

// One thread and no cache: the same picture gives the same bytes on any machine.
sharp.concurrency(1);
sharp.cache(false);

const badge = fileURLToPath(new URL("../assets/badge.svg", import.meta.url));
const { width, height, format, size } = await sharp(teaser)
  .resize({ width: 480, height: 270, fit: "cover" })
  .composite([{ input: badge, gravity: "southeast" }])
  .webp({ quality: 82 })
  .toFile(thumbnail);
console.log(JSON.stringify({ width, height, format, bytes: size }));
