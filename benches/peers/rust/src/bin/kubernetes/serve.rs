//! The API server for the other commands.

use std::io::{Read, stdin};
use std::path::Path;

use anyhow::{Context, Result};
use e2e::Cluster;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::task::spawn_blocking;

use crate::objects::{CHANGING, MANY};

pub(crate) async fn serve() -> Result<()> {
    let cluster = spawn_blocking(Cluster::start).await??;
    let client = client(cluster.kubeconfig()).await?;
    for objects in [MANY, CHANGING] {
        objects.create(&client).await.context("the objects cannot be created")?;
    }
    println!("{}", cluster.kubeconfig().display());
    // The server runs until the parent process ends or closes stdin.
    spawn_blocking(move || {
        let end = stdin().read_to_end(&mut Vec::new());
        drop(cluster);
        end.map(drop)
    })
    .await??;
    Ok(())
}

async fn client(kubeconfig: &Path) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}
