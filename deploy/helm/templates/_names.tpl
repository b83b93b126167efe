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

{{- define "scheme" -}}
{{ if .Values.http.tlsSecret }}HTTPS{{ else }}HTTP{{ end }}
{{- end }}
