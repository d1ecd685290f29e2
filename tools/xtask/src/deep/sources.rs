//! The hash of the sources that a slice covers: the tokens, without comments, of a crate's `src` folder and of the crates of the family below it.
//!
//! A change of a comment or of the layout of a line leaves the hash, and so the evidence, as it is.

use std::collections::BTreeSet;
use std::hash::Hasher;
use std::path::Path;

use anyhow::{Context, Result};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use twox_hash::XxHash64;

use crate::workspace::Workspace;

/// In place of the name of a crate: every published crate.
pub(crate) const ALL: &str = "all";

/// Hashes the sources of the crate and of the crates of the family below it.
pub(crate) fn hash(workspace: &Workspace, package: &str) -> Result<String> {
    let covered = covered(workspace, package);
    let mut hasher = XxHash64::with_seed(0);
    for file in workspace.files()? {
        if file.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let inside = |folder: &Path| file.starts_with(folder.join("src"));
        let wanted =
            workspace.published().any(|one| covered.contains(&one.name) && inside(one.folder(workspace)));
        if wanted {
            let name = file.to_string_lossy().replace('\\', "/");
            hasher.write(name.as_bytes());
            tokens(&mut hasher, &workspace.read(&file)?).with_context(|| name.clone())?;
        }
    }
    Ok(format!("{:016x}", hasher.finish()))
}

/// Returns the crate and the published crates that it depends on, directly or indirectly.
fn covered(workspace: &Workspace, package: &str) -> BTreeSet<String> {
    if package == ALL {
        return workspace.published().map(|package| package.name.clone()).collect();
    }
    let mut covered = BTreeSet::from([package.to_owned()]);
    loop {
        let mut below = workspace.published().filter(|other| {
            let above = |package: &&crate::workspace::Package| covered.contains(&package.name);
            !covered.contains(&other.name)
                && workspace.published().filter(above).any(|package| package.depends_on(&other.name))
        });
        match below.next() {
            Some(other) => covered.insert(other.name.clone()),
            None => return covered,
        };
    }
}

/// Adds the tokens of a file, without documentation.
fn tokens(hasher: &mut XxHash64, text: &str) -> Result<()> {
    let tokens: TokenStream = text.parse().map_err(|error| anyhow::anyhow!("{error}"))?;
    add(hasher, tokens);
    Ok(())
}

fn add(hasher: &mut XxHash64, tokens: TokenStream) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        // `#[doc = …]` and `#![doc = …]`, which is what comments that document become.
        let group = match (token, tokens.get(at + 1)) {
            (TokenTree::Punct(punct), Some(TokenTree::Punct(inner)))
                if punct.as_char() == '#' && inner.as_char() == '!' =>
            {
                Some(2)
            }
            (TokenTree::Punct(punct), Some(_)) if punct.as_char() == '#' => Some(1),
            _ => None,
        };
        if let Some(group) = group
            && tokens.get(at + group).is_some_and(is_doc)
        {
            at += group + 1;
            continue;
        }
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                word(hasher, open);
                add(hasher, group.stream());
                word(hasher, close);
            }
            token => word(hasher, &token.to_string()),
        }
        at += 1;
    }
}

/// Adds one token. The separator keeps `a b` and `ab` apart.
fn word(hasher: &mut XxHash64, word: &str) {
    hasher.write(word.as_bytes());
    hasher.write(&[0]);
}

fn is_doc(token: &TokenTree) -> bool {
    let TokenTree::Group(group) = token else { return false };
    group.delimiter() == Delimiter::Bracket
        && matches!(group.stream().into_iter().next(), Some(TokenTree::Ident(name)) if name == "doc")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of(text: &str) -> u64 {
        let mut hasher = XxHash64::with_seed(0);
        tokens(&mut hasher, text).unwrap();
        hasher.finish()
    }

    #[test]
    fn comments_and_layout_do_not_count() {
        let plain = hash_of("#[inline] fn f(a: u8) -> u8 { a + 1 }");
        let commented =
            "//! A file.\n\n/// Adds.\n#[inline]\nfn f(a: u8) -> u8 {\n    // Why.\n    a + 1 /* x */\n}\n";
        assert_eq!(hash_of(commented), plain);
        assert_eq!(hash_of("#[doc(hidden)] #[inline] fn f(a: u8) -> u8 { a + 1 }"), plain);
    }

    #[test]
    fn every_token_counts() {
        let texts = [
            "fn f() { a + 1 }",
            "fn f() { a + 2 }",
            "fn f() { (a + 1) }",
            "#[x] fn f() { a + 1 }",
            "fn f() { a - 1 }",
        ];
        let hashes: BTreeSet<u64> = texts.iter().map(|text| hash_of(text)).collect();
        assert_eq!(hashes.len(), texts.len());
    }

    #[test]
    fn a_change_below_changes_the_crates_above() {
        let workspace = Workspace::open().unwrap();
        let covered = |package: &str| covered(&workspace, package);
        assert_eq!(covered("flyball-sync"), BTreeSet::from(["flyball-sync".to_owned()]));
        assert!(covered("flyball-workqueue").contains("flyball-ratelimit"));
        assert!(!covered("flyball-workqueue").contains("flyball-informer-cache"));
        assert_eq!(covered(ALL).len(), workspace.published().count());
    }
}
