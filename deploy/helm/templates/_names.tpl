{{- define "labels" -}}
app.kubernetes.io/name: snapreplay
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "insidePod" -}}
runAsNonRoot: true
runAsUser: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "insideContainer" -}}
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end }}

{{- /* The port for probes and metrics. http.probesPort, if set, has no TLS and no login. */}}
{{- define "probes" -}}
{{ if .Values.http.probesPort }}probes{{ else }}http{{ end }}
{{- end }}

{{- define "probesScheme" -}}
{{ if and .Values.http.tlsSecret (not .Values.http.probesPort) }}HTTPS{{ else }}HTTP{{ end }}
{{- end }}

{{- /* The files that the HTTP API and its clients need. */}}
{{- define "httpMounts" -}}
{{- if .Values.http.tokensSecret }}
- {name: http, mountPath: /etc/snapreplay/http, readOnly: true}
{{- end }}
{{- if .Values.http.tlsSecret }}
- {name: tls, mountPath: /etc/snapreplay/tls, readOnly: true}
{{- end }}
{{- end }}

{{- define "httpVolumes" -}}
{{- with .Values.http.tokensSecret }}
- {name: http, secret: {secretName: {{ . }}}}
{{- end }}
{{- with .Values.http.tlsSecret }}
- {name: tls, secret: {secretName: {{ . }}}}
{{- end }}
{{- end }}

{{- /* The name of an image. Without quotes a tag such as 1.10 is a number, and becomes 1.1. */}}
{{- define "image" -}}
{{- if not (kindIs "string" .tag) }}{{ fail (printf "the tag %v of %s is a number: use --set-string, or quote it in the values file" .tag .repository) }}{{ end -}}
{{ printf "%s:%s" .repository .tag | quote }}
{{- end }}
