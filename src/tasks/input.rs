//! What the items of a request say: text, and files that are put into the working directory.

use super::data_url;
use crate::failure::{Code, Failure};
use serde_json::{Value, json};
use std::collections::HashSet;

/// The most files of one request.
const FILES_MAX: usize = 64;
/// The longest name a file can have.
const NAME_BYTES_MAX: usize = 255;

/// What is to be done, and with which files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Input {
    /// The texts of the user, in order.
    pub text: String,
    /// The files.
    pub files: Vec<InputFile>,
    /// Items that have no effect.
    pub ignored: Vec<String>,
}

/// A file that is sent along.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputFile {
    /// One plain name; empty where an upload's own name counts.
    pub name: String,
    /// Where its bytes are.
    pub content: Content,
    /// The field that named it.
    pub param: String,
}

/// Where the bytes of a file are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// In the request.
    Inline(Vec<u8>),
    /// In an upload with this id.
    Upload(String),
}

fn wrong(param: &str, why: &str) -> Failure {
    Failure::new(Code::InvalidInput, why).with_param(param)
}

/// Reads `input`: the items, a string being one message, and what they say.
///
/// # Errors
/// [`Code::InvalidInput`] with the item or part that cannot be read.
pub fn read(input: Option<&Value>) -> Result<(Vec<Value>, Input), Failure> {
    let items = match input {
        None => return Err(wrong("input", "there is no input")),
        Some(Value::String(text)) => vec![json!({
            "type": "message", "role": "user",
            "content": [{ "type": "input_text", "text": text }],
        })],
        Some(Value::Array(items)) => items.clone(),
        Some(_) => return Err(wrong("input", "input is neither text nor a list of items")),
    };
    let mut read = Input::default();
    for (index, item) in items.iter().enumerate() {
        read.item(item, &format!("input[{index}]"))?;
    }
    if read.text.trim().is_empty() {
        return Err(wrong("input", "the input has no text"));
    }
    if read.text.contains('\0') {
        return Err(wrong("input", "the text contains a NUL character"));
    }
    if read.files.len() > FILES_MAX {
        return Err(wrong("input", "the input has too many files"));
    }
    read.tell_names_apart();
    Ok((items, read))
}

impl Input {
    fn item(&mut self, item: &Value, param: &str) -> Result<(), Failure> {
        match item["type"].as_str() {
            None | Some("message") => {}
            Some(_) => return self.part(item, param),
        }
        // Guidance for a model, and what one said before: no command of this task.
        if item["role"].as_str().is_some_and(|role| role != "user") {
            self.ignored.push(param.to_owned());
            return Ok(());
        }
        match &item["content"] {
            Value::String(text) => self.text(text),
            Value::Array(parts) => {
                for (index, part) in parts.iter().enumerate() {
                    self.part(part, &format!("{param}.content[{index}]"))?;
                }
            }
            _ => return Err(wrong(param, "the message has no content")),
        }
        Ok(())
    }

    fn part(&mut self, part: &Value, param: &str) -> Result<(), Failure> {
        match part["type"].as_str() {
            Some("input_text" | "text") => {
                let text = part["text"].as_str();
                self.text(text.ok_or_else(|| wrong(param, "the part has no text"))?);
            }
            Some("input_file") => {
                let file = file(part, &part["file_data"], param)?;
                self.files.push(file);
            }
            Some("input_image") => {
                let url = &part["image_url"];
                // Some clients wrap the address.
                let url = if url.is_object() { &url["url"] } else { url };
                let file = file(part, url, param)?;
                self.files.push(file);
            }
            _ => return Err(wrong(param, "the part has a type this server does not know")),
        }
        Ok(())
    }

    fn text(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(text);
    }

    /// Two files of one name would be one file.
    fn tell_names_apart(&mut self) {
        let mut taken = HashSet::new();
        for file in self.files.iter_mut().filter(|file| !file.name.is_empty()) {
            file.name = free_name(&file.name, &taken);
            taken.insert(file.name.clone());
        }
    }
}

/// The name, or one like it that is not taken.
pub(super) fn free_name(name: &str, taken: &HashSet<String>) -> String {
    let (stem, end) = match name.rfind('.').filter(|at| *at > 0) {
        Some(at) => name.split_at(at),
        None => (name, ""),
    };
    let others = (2..).map(|number| format!("{stem}-{number}{end}"));
    let mut names = std::iter::once(name.to_owned()).chain(others);
    names.find(|name| !taken.contains(name)).expect("there is always another number")
}

fn file(part: &Value, data: &Value, param: &str) -> Result<InputFile, Failure> {
    let name = match &part["filename"] {
        Value::Null => String::new(),
        Value::String(name) => plain_name(name)
            .ok_or_else(|| wrong(param, "the name of the file cannot be one in a directory"))?,
        _ => return Err(wrong(param, "the name of the file is no text")),
    };
    let id = part["file_id"].as_str().filter(|id| !id.is_empty());
    match (data.as_str(), id) {
        (Some(_), Some(_)) => Err(wrong(param, "the file is sent along and named by an id")),
        (None, Some(id)) => {
            let content = Content::Upload(id.to_owned());
            Ok(InputFile { name, content, param: param.to_owned() })
        }
        (Some(url), None) => {
            let url = data_url::parse(url);
            let url = url.ok_or_else(|| {
                wrong(param, "the file is no data URL, and addresses are not fetched")
            })?;
            let name = if name.is_empty() { default_name(&url.media_type) } else { name };
            let content = Content::Inline(url.bytes);
            Ok(InputFile { name, content, param: param.to_owned() })
        }
        (None, None) => Err(wrong(param, "the file has neither file_data nor file_id")),
    }
}

/// The last part of a name as clients of any system write it.
#[must_use]
pub fn plain_name(name: &str) -> Option<String> {
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let plain = !matches!(name, "" | "." | "..")
        && name.len() <= NAME_BYTES_MAX
        && !name.chars().any(char::is_control);
    plain.then(|| name.to_owned())
}

fn default_name(media_type: &str) -> String {
    let end = match media_type {
        "image/png" => "png",
        "image/jpeg" => "jpg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        "image/svg+xml" => "svg",
        "application/pdf" => "pdf",
        "application/json" => "json",
        "text/plain" => "txt",
        "text/csv" => "csv",
        _ => "bin",
    };
    let kind = if media_type.starts_with("image/") { "image" } else { "file" };
    format!("{kind}.{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_it(input: Value) -> Result<Input, Failure> {
        read(Some(&input)).map(|(_, input)| input)
    }

    #[test]
    fn texts_are_joined_and_files_get_names_of_their_own() {
        let image = json!({ "type": "input_image", "image_url": "data:image/png;base64,aGk=" });
        let named =
            |name: &str| json!({ "type": "input_file", "filename": name, "file_data": "data:,x" });
        let input = read_it(json!([
            { "role": "system", "content": "be brief" },
            { "role": "user", "content": [
                { "type": "input_text", "text": "cat *" },
                named("a/b.txt"), named("C:\\b.txt"), named(".b"), named(".b"), image,
                { "type": "input_file", "file_id": "file_up1" },
            ]},
            { "type": "message", "role": "user", "content": "ls" },
            { "type": "input_text", "text": "id" },
        ]))
        .unwrap();
        assert_eq!(input.text, "cat *\nls\nid");
        assert_eq!(input.ignored, ["input[0]"]);
        let names: Vec<_> = input.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["b.txt", "b-2.txt", ".b", ".b-2", "image.png", ""]);
        assert_eq!(input.files[5].content, Content::Upload("file_up1".to_owned()));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let file = |fields: Value| json!([{ "content": [fields] }]);
        for (input, param) in [
            (json!(7), "input"),
            (json!([]), "input"),
            (json!("  "), "input"),
            (json!("a\0b"), "input"),
            (json!([{ "role": "user" }]), "input[0]"),
            (json!([{ "type": "function_call_output" }]), "input[0]"),
            (file(json!({ "type": "input_text" })), "input[0].content[0]"),
            (file(json!({ "type": "input_audio" })), "input[0].content[0]"),
            (file(json!({ "type": "input_file" })), "input[0].content[0]"),
            (file(json!({ "type": "input_file", "file_data": "aGk=" })), "input[0].content[0]"),
            (
                file(json!({ "type": "input_image", "image_url": "https://x/y.png" })),
                "input[0].content[0]",
            ),
            (
                file(json!({ "type": "input_file", "filename": "..", "file_data": "data:,x" })),
                "input[0].content[0]",
            ),
        ] {
            let failure = read_it(input.clone()).unwrap_err();
            assert_eq!(failure.param.as_deref(), Some(param), "{input}");
        }
    }
}
